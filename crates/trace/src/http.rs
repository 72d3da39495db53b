//! The attributes of HTTP requests.

use http::header::HOST;
use http::uri::Authority;
use http::{Method, Request};

use crate::attribute;
use crate::context::TraceContext;
use crate::span::SpanRecord;

/// The status from which a client sees a failure; a server sees one from 500.
const CLIENT_ERROR: u16 = 400;
const SERVER_ERROR: u16 = 500;

impl SpanRecord {
    /// The request that a server handles. `path` is its path without secrets; the query is left out, because it may
    /// contain some.
    pub fn set_request<B>(&mut self, request: &Request<B>, scheme: &'static str, path: &str) {
        let method = method_name(request.method());
        self.set_name(method);
        self.set_state(TraceContext::state_of(request.headers()));
        self.set(attribute::HTTP_REQUEST_METHOD, method);
        self.set(attribute::URL_SCHEME, scheme);
        self.set(attribute::URL_PATH, path);
        let header = request.headers().get(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
        if let Some(host) = request.uri().authority().or(header.as_ref()) {
            self.set_server(host.host(), host.port_u16());
        }
    }

    /// The route of the request, and with it the name of the span.
    pub fn set_route(&mut self, method: &Method, route: &str) {
        self.set_name(format!("{} {route}", method_name(method)));
        self.set(attribute::HTTP_ROUTE, route);
    }

    /// The host that a client calls, or that a server was called by.
    pub fn set_server(&mut self, host: &str, port: Option<u16>) {
        self.set(attribute::SERVER_ADDRESS, host);
        if let Some(port) = port {
            self.set(attribute::SERVER_PORT, port);
        }
    }

    /// The response that a server sends. What the client did wrong is not an error of the server.
    pub fn set_response(&mut self, status: u16) {
        self.set_status(status, SERVER_ERROR);
    }

    /// The response that a client received.
    pub fn set_received(&mut self, status: u16) {
        self.set_status(status, CLIENT_ERROR);
    }

    fn set_status(&mut self, status: u16, first_error: u16) {
        self.set(attribute::HTTP_RESPONSE_STATUS_CODE, status);
        if status >= first_error {
            self.fail(&status.to_string(), "");
        }
    }
}

/// The method as the conventions want it: clients can send any method, so unknown ones share one value.
fn method_name(method: &Method) -> &str {
    const KNOWN: [Method; 9] = [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::HEAD,
        Method::OPTIONS,
        Method::CONNECT,
        Method::TRACE,
    ];
    if KNOWN.contains(method) { method.as_str() } else { "_OTHER" }
}
