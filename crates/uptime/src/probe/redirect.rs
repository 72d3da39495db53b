//! Follows redirects.

use http::header::LOCATION;
use http::{HeaderMap, Method, StatusCode};
use hyper::body::Bytes;
use url::Url;

use crate::monitor::check::{Failure, FailureClass, HttpCheck};

/// One request of a chain of redirects.
#[derive(Clone, Debug)]
pub(super) struct Hop {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    follow: Follow,
}

#[derive(Clone, Copy, Debug)]
enum Follow {
    /// A redirect is the final response.
    Never,
    /// Follows this many more.
    UpTo(u8),
}

/// What follows a response.
#[derive(Debug)]
pub(super) enum RedirectStep {
    Final,
    Follow(Box<Hop>),
}

impl Hop {
    pub(super) fn first(check: &HttpCheck, headers: HeaderMap) -> Self {
        let follow = if check.redirects == 0 { Follow::Never } else { Follow::UpTo(check.redirects) };
        let body = check.body.as_ref().map(|body| Bytes::copy_from_slice(body.as_bytes()));
        Self {
            method: check.method.clone(),
            url: check.url.clone(),
            headers,
            body: body.unwrap_or_default(),
            follow,
        }
    }

    /// A request that does not follow redirects.
    pub(super) fn only(method: Method, url: Url, headers: HeaderMap, body: Bytes) -> Self {
        Self { method, url, headers, body, follow: Follow::Never }
    }

    /// Whether a response is a redirect that is followed.
    pub(super) fn is_followed(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        matches!(self.follow, Follow::UpTo(_)) && is_redirect(status) && headers.contains_key(LOCATION)
    }

    pub(super) fn after(&self, status: StatusCode, headers: &HeaderMap) -> Result<RedirectStep, Failure> {
        let refuse =
            |message: &str| Failure::new(FailureClass::Redirect, message).with_status(status.as_u16());
        let location = headers.get(LOCATION).filter(|_| self.is_followed(status, headers));
        let (Some(location), Follow::UpTo(left)) = (location, self.follow) else {
            return Ok(RedirectStep::Final);
        };
        let Some(left) = left.checked_sub(1) else {
            return Err(refuse("more redirects than allowed"));
        };
        let joined = location.to_str().ok().and_then(|location| self.url.join(location).ok());
        let Some(mut url) = joined.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        else {
            return Err(refuse("redirect to an invalid URL"));
        };
        // Credentials in the Location header are not sent.
        let _ = (url.set_username(""), url.set_password(None));
        url.set_fragment(None);
        Ok(RedirectStep::Follow(Box::new(self.redirected_to(url, status, left))))
    }

    fn redirected_to(&self, url: Url, status: StatusCode, left: u8) -> Self {
        let is_get = matches!(self.method, Method::GET | Method::HEAD);
        let becomes_get = match status {
            StatusCode::SEE_OTHER => !is_get,
            // Not in the standard, but what browsers do.
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => self.method == Method::POST,
            _ => false,
        };
        // The headers are for the original server and may contain its secrets.
        let headers = if url.origin() == self.url.origin() { self.headers.clone() } else { HeaderMap::new() };
        Self {
            method: if becomes_get { Method::GET } else { self.method.clone() },
            url,
            headers,
            body: if becomes_get { Bytes::new() } else { self.body.clone() },
            follow: Follow::UpTo(left),
        }
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn post(url: &str) -> Hop {
        let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, HeaderValue::from_static("x"))]);
        let body = Bytes::from_static(b"body");
        Hop { method: Method::POST, url: url.parse().unwrap(), headers, body, follow: Follow::UpTo(2) }
    }

    fn follow(hop: &Hop, status: u16, location: &str) -> Hop {
        let headers = HeaderMap::from_iter([(LOCATION, location.parse().unwrap())]);
        match hop.after(StatusCode::from_u16(status).unwrap(), &headers).unwrap() {
            RedirectStep::Follow(next) => *next,
            RedirectStep::Final => panic!("{status} was not followed"),
        }
    }

    #[test]
    fn headers_are_not_sent_to_another_origin() {
        let hop = post("https://a.example/x");
        assert_eq!(follow(&hop, 307, "/y").headers.len(), 1);
        for elsewhere in ["https://b.example/", "http://a.example/", "https://a.example:8443/", "//b.example"]
        {
            assert!(follow(&hop, 307, elsewhere).headers.is_empty(), "{elsewhere}");
        }
    }

    #[test]
    fn method_changes_as_in_browsers() {
        let hop = post("http://a.example/");
        for (status, method, body) in
            [(301, "GET", ""), (302, "GET", ""), (303, "GET", ""), (307, "POST", "body")]
        {
            let next = follow(&hop, status, "/next");
            assert_eq!((next.method.as_str(), next.body.as_ref()), (method, body.as_bytes()), "{status}");
        }
    }

    #[test]
    fn redirect_must_be_http_and_its_credentials_are_dropped() {
        let hop = post("http://a.example/");
        let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static("file:///etc/passwd"))]);
        let refused = hop.after(StatusCode::FOUND, &headers).unwrap_err();
        assert_eq!(refused.class, FailureClass::Redirect);
        assert_eq!(follow(&hop, 302, "http://u:p@b.example/#f").url.as_str(), "http://b.example/");
    }

    #[test]
    fn too_many_redirects_are_refused() {
        let last = follow(&follow(&post("http://a.example/"), 302, "/1"), 302, "/2");
        let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static("/3"))]);
        assert_eq!(last.after(StatusCode::FOUND, &headers).unwrap_err().class, FailureClass::Redirect);
    }
}
