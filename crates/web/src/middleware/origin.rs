//! Keeps pages from elsewhere away, without tokens hidden in forms.
//!
//! Whoever asks for a name that is not ours may have been led here by a name server (DNS rebinding): refused. A change
//! that a browser says comes from another site is refused as well, and so are sockets. A request with a bearer token is
//! no browser's doing: pages elsewhere cannot send that header without our leave, which nobody gets.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::Problem;
use crate::config::Config;
use crate::console::Frame;

pub(crate) async fn same_origin(request: Request, next: Next) -> Response {
    let Some(frame) = request.extensions().get::<Frame>() else {
        return Problem::internal("a request without a frame").into_response();
    };
    match check(&frame.web().config(), &request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn check(config: &Config, request: &Request) -> Result<(), Problem> {
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
        return Err(Problem::forbidden("A page of another site may not do this."));
    }
    Ok(())
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
        check(&config(), &request).map_or_else(|problem| problem.status().as_u16(), |()| 200)
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
