//! Proxies: HTTP endpoints of the application that decide whether a client may connect, stay, subscribe or publish, and that
//! answer RPC calls, as in Centrifugo.
//!
//! A client gets what the application grants. If the application does not answer in time, or not as documented, nothing is
//! granted, and the client can try again.

mod config;
mod message;

use std::sync::atomic::{AtomicU32, Ordering};

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use hob_net::HttpClientError;
use hob_service::Section as _;
use hob_service::config::SecretDenied;
use hob_web::webhook::signature;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use config::Proxy;
pub(crate) use config::check;
use message::Response;
pub(crate) use message::{
    ConnectGrant, ConnectProxyRequest, Peer, ProxyRequest, PublishGrant, RefreshGrant, RpcGrant,
    SubscribeGrant, TransportName,
};

use crate::session::protocol::{Disconnect, ReplyError, parse};
use crate::{Chat, Config, metrics};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const SIGNATURE: HeaderName = HeaderName::from_static(signature::HEADER);

/// What the application decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyKind {
    Connect,
    Refresh,
    Subscribe,
    Publish,
    Rpc,
}

/// Why something is not granted.
#[derive(Debug)]
pub(crate) enum Denial {
    /// The application has refused it.
    Refused(ReplyError),
    /// The application has decided to close the connection.
    Disconnected(Disconnect),
    /// The application did not respond, or its response is invalid.
    Failed,
}

/// Why a call to the application failed.
#[derive(Debug, thiserror::Error)]
enum ProxyError {
    #[error("too many requests to the application; raise [chat.proxy] max_concurrent")]
    TooMany,
    #[error(transparent)]
    Secret(#[from] SecretDenied),
    #[error(transparent)]
    Http(#[from] HttpClientError),
    #[error("status {}", .0.as_u16())]
    Status(StatusCode),
    #[error("malformed response: {0}")]
    Malformed(String),
}

/// Counts the requests that wait for the application.
#[derive(Debug, Default)]
pub(crate) struct ProxyCalls(AtomicU32);

/// A request that waits for the application, until it is dropped.
struct Waiting<'a>(&'a AtomicU32);

impl ProxyCalls {
    fn begin(&self, max: u32) -> Option<Waiting<'_>> {
        let waiting = Waiting(&self.0);
        (self.0.fetch_add(1, Ordering::Relaxed) < max).then_some(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ProxyKind {
    fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Refresh => "refresh",
            Self::Subscribe => "subscribe",
            Self::Publish => "publish",
            Self::Rpc => "rpc",
        }
    }
}

impl Chat {
    /// Whether the application decides this.
    pub(crate) fn has_proxy(&self, kind: ProxyKind) -> bool {
        self.config().proxy.as_ref().is_some_and(|proxy| proxy.url(kind).is_some())
    }

    /// Asks the application. `headers` are those of the client that the configuration passes on.
    pub(crate) async fn ask<G: DeserializeOwned>(
        &self,
        kind: ProxyKind,
        headers: &HeaderMap,
        request: &impl Serialize,
    ) -> Result<G, Denial> {
        let answer = self.call_proxy(kind, headers, request).await.and_then(Response::into_answer);
        let (outcome, answer) = match answer {
            Ok(Ok(granted)) => ("granted", Ok(granted)),
            Ok(Err(denial)) => ("refused", Err(denial)),
            Err(error) => {
                tracing::warn!(proxy = kind.name(), %error, "proxy request failed");
                ("failed", Err(Denial::Failed))
            }
        };
        metrics::proxy_asked(kind.name(), outcome);
        answer
    }

    async fn call_proxy(
        &self,
        kind: ProxyKind,
        headers: &HeaderMap,
        request: &impl Serialize,
    ) -> Result<Response, ProxyError> {
        let config = self.config();
        let proxy = config.proxy.as_ref();
        let Some((proxy, url)) = proxy.and_then(|proxy| Some((proxy, proxy.url(kind)?.url()))) else {
            return Err(ProxyError::Malformed("the proxy is not configured".to_owned()));
        };
        let _waiting = self.inner.proxy_calls.begin(proxy.max_concurrent).ok_or(ProxyError::TooMany)?;
        let body = serde_json::to_vec(request).map_err(|error| ProxyError::Malformed(error.to_string()))?;
        let secrets = &self.inner.secrets;
        let to = secrets.check_url(&proxy.secret, Config::NAME, url)?;
        let secret = secrets.read(&proxy.secret, Config::NAME, &to)?;
        let signed = signature::sign(&secret, hob_units::unix_time().as_secs(), &body);
        let mut headers = headers.clone();
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(SIGNATURE, HeaderValue::from_str(&signed).expect("digits and letters"));
        // The operator has chosen the address.
        let client = self.inner.http.clone().trusting(url).with_timeout(proxy.timeout.get());
        let response = client.post(url, headers, body).await?;
        if response.status != StatusCode::OK {
            return Err(ProxyError::Status(response.status));
        }
        parse(&response.body).map_err(ProxyError::Malformed)
    }
}
