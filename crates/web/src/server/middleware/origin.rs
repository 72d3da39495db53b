//! Keeps pages from elsewhere away, without tokens hidden in forms.
//!
//! Whoever asks for a name that is not ours may have been led here by a name server (DNS rebinding): refused. A change
//! that a browser says comes from another site is refused as well, and so are sockets. A request with a bearer token is
//! no browser's doing: pages elsewhere cannot send that header without our leave, which nobody gets. A WebSocket that is
//! meant for pages of other sites says so when it is [entered](crate::Routes::socket), and decides itself.

use std::net::IpAddr;

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::Problem;
use crate::config::Config;
use crate::console::Frame;

/// Where a WebSocket is opened from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From a page of ours, or by a program that is no browser.
    Own,
    /// From a page of this site, as the browser writes it: `https://shop.example`.
    Elsewhere(String),
}

impl<S: Send + Sync> FromRequestParts<S> for Origin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let origin = parts.extensions.get().cloned();
        origin.ok_or_else(|| Problem::internal("a socket was asked for outside of an app"))
    }
}

pub(crate) async fn same_origin(mut request: Request, next: Next) -> Response {
    let Some(frame) = request.extensions().get::<Frame>() else {
        return Problem::internal("a request without a frame").into_response();
    };
    let socket = request.headers().contains_key(header::UPGRADE);
    let open = socket && frame.has_open_socket(request.uri().path());
    match check(&frame.web().config(), &request) {
        Ok(Origin::Elsewhere(_)) if !open => {
            Problem::forbidden("A page of another site may not do this.").into_response()
        }
        Ok(origin) => {
            request.extensions_mut().insert(origin);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// Where a change, or a socket, comes from; whatever only looks may come from anywhere.
fn check(config: &Config, request: &Request) -> Result<Origin, Problem> {
    let host = host(request)?;
    if let Some(host) = &host
        && !is_ours(config, host.host())
    {
        let detail = "This server does not go by that name. server.hosts lists the names that it has.";
        return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail));
    }
    let headers = request.headers();
    let changes = !request.method().is_safe() || headers.contains_key(header::UPGRADE);
    if changes && !has_bearer(headers) && comes_from_elsewhere(headers, host.as_ref()) {
        let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
        return Ok(Origin::Elsewhere(origin.unwrap_or("null").to_owned()));
    }
    Ok(Origin::Own)
}

/// Whom the request is for. Old programs may leave it out; browsers never do.
fn host(request: &Request) -> Result<Option<Authority>, Problem> {
    if let Some(authority) = request.uri().authority() {
        return Ok(Some(authority.clone()));
    }
    let Some(value) = request.headers().get(header::HOST) else { return Ok(None) };
    let authority = value.to_str().ok().and_then(|text| text.parse::<Authority>().ok());
    authority.map(Some).ok_or_else(|| Problem::bad_request("The Host header cannot be understood."))
}

fn is_ours(config: &Config, host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        // No name server has a say in an address. On loopback, only loopback ones can be meant.
        return address.is_loopback() || !config.listen.ip().is_loopback();
    }
    let name = host.trim_end_matches('.');
    name.eq_ignore_ascii_case("localhost") || config.hosts.iter().any(|ours| ours.eq_ignore_ascii_case(name))
}

fn has_bearer(headers: &HeaderMap) -> bool {
    headers.get(header::AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(b"Bearer "))
}

/// What the browser says, newer ones in so many words. Programs that are no browsers say nothing.
fn comes_from_elsewhere(headers: &HeaderMap, host: Option<&Authority>) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        return site != "same-origin" && site != "none";
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let authority = origin.to_str().ok().and_then(|text| text.split_once("://")).map(|(_, rest)| rest);
    match (authority, host) {
        (Some(origin), Some(host)) => !origin.eq_ignore_ascii_case(host.as_str()),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn config() -> Config {
        Config { hosts: vec!["hob.example".to_owned()], ..Config::default() }
    }

    fn answer(method: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().method(method).uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        match check(&config(), &request) {
            Ok(Origin::Own) => 200,
            Ok(Origin::Elsewhere(_)) => 403,
            Err(problem) => problem.status().as_u16(),
        }
    }

    #[test]
    fn only_names_of_ours_are_answered() {
        for host in ["localhost:7070", "127.0.0.1", "[::1]:7070", "HOB.example", "hob.example.:443"] {
            assert_eq!(answer("GET", &[("host", host)]), 200, "{host}");
        }
        for host in
            ["evil.example", "hob.example.evil.example", "192.168.1.7:7070", "0.0.0.0", "localhost.evil"]
        {
            assert_eq!(answer("GET", &[("host", host)]), 421, "{host}");
        }
        assert_eq!(answer("GET", &[("host", "a b")]), 400);
    }

    #[test]
    fn an_address_cannot_be_rebound_so_any_is_answered_where_others_can_reach_us() {
        let config = Config { listen: "0.0.0.0:7070".parse().unwrap(), ..config() };
        assert!(is_ours(&config, "192.168.1.7"));
        assert!(!is_ours(&config, "evil.example"));
    }

    #[test]
    fn changes_come_from_our_own_pages_or_from_no_page() {
        let host = ("host", "localhost:7070");
        for (headers, status) in [
            (vec![host], 200),
            (vec![host, ("sec-fetch-site", "same-origin")], 200),
            (vec![host, ("sec-fetch-site", "none")], 200),
            (vec![host, ("sec-fetch-site", "same-site")], 403),
            (vec![host, ("sec-fetch-site", "cross-site")], 403),
            (vec![host, ("origin", "http://localhost:7070")], 200),
            (vec![host, ("origin", "http://localhost:8080")], 403),
            (vec![host, ("origin", "http://evil.example")], 403),
            (vec![host, ("origin", "null")], 403),
            (vec![("origin", "http://evil.example")], 403),
            (vec![host, ("sec-fetch-site", "cross-site"), ("authorization", "Bearer x")], 200),
            (vec![host, ("sec-fetch-site", "cross-site"), ("authorization", "Basic x")], 403),
        ] {
            assert_eq!(answer("POST", &headers), status, "{headers:?}");
            let mut socket = headers.clone();
            socket.push(("upgrade", "websocket"));
            assert_eq!(answer("GET", &socket), status, "{socket:?}");
        }
        assert_eq!(
            answer("GET", &[host, ("sec-fetch-site", "cross-site")]),
            200,
            "links lead here from anywhere"
        );
    }
}
