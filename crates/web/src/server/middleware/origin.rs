//! Protects against cross-site requests and DNS rebinding, without hidden form tokens. Also protects a server without
//! an admin token against requests from other machines.
//!
//! A request with an unknown Host header is rejected (DNS rebinding). Changes and WebSockets are rejected if the
//! headers of the browser show that they come from another site. A request with a bearer token is accepted: pages of
//! other sites cannot send that header, because this server never allows it with CORS. What pages of other sites may request
//! is registered with [`Routes::socket`](crate::Routes::socket) or [`Routes::cross_origin`](crate::Routes::cross_origin), and
//! its handler checks the origin.

use std::net::IpAddr;

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::Problem;
use crate::config::Config;
use crate::console::AppContext;

/// The origin of a change, of a WebSocket, or of what pages of other sites may request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A page of this server, or a client that is not a browser.
    Own,
    /// A page of another site: `https://shop.example`.
    Elsewhere(String),
}

impl<S: Send + Sync> FromRequestParts<S> for Origin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let origin = parts.extensions.get().cloned();
        origin.ok_or_else(|| Problem::internal("the route of this request was not registered through `App`"))
    }
}

/// A longer origin is not repeated in an error.
const MAX_SHOWN_ORIGIN: usize = 200;

/// Headers that a proxy adds to the requests that it forwards.
const FORWARDING_HEADERS: [HeaderName; 6] = [
    header::FORWARDED,
    header::VIA,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-real-ip"),
];

/// Without an admin token, everyone on this machine has full access. A proxy on this machine would give this access to
/// everyone who can reach the proxy.
pub(crate) async fn refuse_forwarded_if_open(request: Request, next: Next) -> Response {
    let is_open =
        request.extensions().get::<AppContext>().is_some_and(|frame| frame.web().authenticator().is_open());
    if is_open && FORWARDING_HEADERS.iter().any(|name| request.headers().contains_key(name)) {
        let detail = "A proxy has forwarded this request to a server without an admin token, which serves this machine only. \
                      Set HOB_ADMIN_TOKEN or [server] admin_token.";
        return Problem::forbidden(detail).into_response();
    }
    next.run(request).await
}

pub(crate) async fn same_origin(mut request: Request, next: Next) -> Response {
    let Some(frame) = request.extensions().get::<AppContext>() else {
        return Problem::internal("the route of this request was not registered through `App`")
            .into_response();
    };
    let open = frame.accepts_other_origins(request.uri().path());
    match check(&frame.web().config(), &request, open) {
        Ok(Origin::Elsewhere(origin)) if !open => refuse_origin(&origin).into_response(),
        Ok(origin) => {
            request.extensions_mut().insert(origin);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// No setting allows pages of other sites to change anything: they use a token. A page of this server looks like one of
/// another site if a proxy replaces the Host header.
fn refuse_origin(origin: &str) -> Problem {
    let origin = if origin.len() <= MAX_SHOWN_ORIGIN { origin } else { "This origin" };
    Problem::forbidden(format!(
        "Cross-origin request rejected. {origin} is not the origin of this server. If it is its public address, let the \
         proxy in front keep the Host header, and add the name to [server] hosts. Pages of other sites need an API token."
    ))
}

/// The origin of a change, of a WebSocket, or of an open path. Other safe requests may come from anywhere.
fn check(config: &Config, request: &Request, open: bool) -> Result<Origin, Problem> {
    let host = host(request.uri(), request.headers())?;
    if let Some(host) = &host
        && !is_own_host(config, host.host())
    {
        let detail = "Unknown Host header. Add the name to [server] hosts.";
        return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail));
    }
    let headers = request.headers();
    let matters = open || !request.method().is_safe() || headers.contains_key(header::UPGRADE);
    if matters && !has_bearer(headers) && is_cross_origin(headers, host.as_ref()) {
        let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
        return Ok(Origin::Elsewhere(origin.unwrap_or("null").to_owned()));
    }
    Ok(Origin::Own)
}

/// The requested host. Old clients may omit it; browsers never do.
pub(super) fn host(uri: &Uri, headers: &HeaderMap) -> Result<Option<Authority>, Problem> {
    if let Some(authority) = uri.authority() {
        return Ok(Some(authority.clone()));
    }
    let Some(value) = headers.get(header::HOST) else { return Ok(None) };
    let authority = value.to_str().ok().and_then(|text| text.parse::<Authority>().ok());
    authority.map(Some).ok_or_else(|| Problem::bad_request("Invalid Host header."))
}

fn is_own_host(config: &Config, host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        // IP addresses are safe, because DNS rebinding needs a name. A loopback listener can be reached only through
        // loopback addresses.
        return address.is_loopback() || !config.listen.ip().is_loopback();
    }
    let name = host.trim_end_matches('.');
    name.eq_ignore_ascii_case("localhost") || config.hosts.iter().any(|ours| ours.eq_ignore_ascii_case(name))
}

fn has_bearer(headers: &HeaderMap) -> bool {
    headers.get(header::AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(b"Bearer "))
}

/// Reads `Sec-Fetch-Site`, or `Origin` for older browsers. Clients that are not browsers send neither.
fn is_cross_origin(headers: &HeaderMap, host: Option<&Authority>) -> bool {
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
        match check(&config(), &request, false) {
            Ok(Origin::Own) => 200,
            Ok(Origin::Elsewhere(_)) => 403,
            Err(problem) => problem.status().as_u16(),
        }
    }

    #[test]
    fn unknown_hosts_are_rejected() {
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
    fn any_ip_address_is_accepted_unless_listening_on_loopback() {
        let config = Config { listen: "0.0.0.0:7070".parse().unwrap(), ..config() };
        assert!(is_own_host(&config, "192.168.1.7"));
        assert!(!is_own_host(&config, "evil.example"));
    }

    #[test]
    fn cross_origin_changes_are_rejected() {
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
            "links from other sites work"
        );
    }
}
