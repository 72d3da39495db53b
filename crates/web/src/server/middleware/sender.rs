//! The sender of a request: its address, and whether its connection is encrypted, even behind trusted proxies.

use std::net::{IpAddr, Ipv4Addr};

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;

use super::origin::host;
use crate::Problem;
use crate::console::AppContext;
use crate::server::listener::Peer;

/// The sender of a request. Every request carries it as an extension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    /// The address that wrong credentials are counted for.
    pub(crate) address: IpAddr,
    /// Whether the client uses HTTPS, to this server or to a trusted proxy.
    pub(crate) is_https: bool,
}

impl Sender {
    fn of(request: &Request) -> Self {
        let (peer, frame) = (request.extensions().get::<Peer>(), request.extensions().get::<AppContext>());
        let (Some(peer), Some(frame)) = (peer, frame) else {
            // A request without a connection, in a test of the router.
            return Self { address: Ipv4Addr::UNSPECIFIED.into(), is_https: false };
        };
        let (web, headers) = (frame.web(), request.headers());
        let proxies = web.config().trusted_proxies();
        let address = proxies.client_address(peer.0, headers).address;
        Self { address, is_https: web.has_tls() || proxies.is_https(peer.0, headers) }
    }
}

/// Adds the [`Sender`] to the request.
pub(crate) async fn identify_sender(mut request: Request, next: Next) -> Response {
    let sender = Sender::of(&request);
    request.extensions_mut().insert(sender);
    next.run(request).await
}

impl<S: Send + Sync> FromRequestParts<S> for Sender {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let sender = parts.extensions.get().copied();
        sender.ok_or_else(|| Problem::internal("the route of this request was not registered through `App`"))
    }
}

/// The address of the client, also behind trusted proxies. An extractor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

impl<S: Send + Sync> FromRequestParts<S> for ClientAddress {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self(Sender::from_request_parts(parts, state).await?.address))
    }
}

/// The URL at which the client reaches this server, without a path: `https://hob.example`. An extractor.
///
/// The name comes from the Host header, which is one of [`[server] hosts`](crate::Config): requests with another one are
/// rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl(String);

impl BaseUrl {
    /// The URL of a path, which starts with a slash.
    #[must_use]
    pub fn join(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }

    /// Whether the client uses HTTPS.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.0.starts_with("https:")
    }
}

impl<S: Send + Sync> FromRequestParts<S> for BaseUrl {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let sender = Sender::from_request_parts(parts, state).await?;
        let scheme = if sender.is_https { "https" } else { "http" };
        let host = match host(&parts.uri, &parts.headers)? {
            Some(host) => host.to_string(),
            // An old client. It has reached the listener by its address.
            None => match parts.extensions.get::<AppContext>() {
                Some(frame) => frame.web().config().listen.to_string(),
                None => {
                    return Err(Problem::internal(
                        "request has no AppContext: its route was not added through an App",
                    ));
                }
            },
        };
        Ok(Self(format!("{scheme}://{host}")))
    }
}
