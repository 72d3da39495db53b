//! The HTTP client: pooled connections, bounded bodies, a deadline for each request.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hob_net::{Outbound, OutboundError};
use hob_units::error_text;
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::plan::retry::FailureClass;

/// Sends requests. Clones share a connection pool.
#[derive(Clone, Debug)]
pub(crate) struct HttpClient {
    client: Client<Connector, Full<Bytes>>,
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttemptFailure {
    pub(crate) class: FailureClass,
    pub(crate) error: String,
}

impl HttpClient {
    pub(crate) fn new(outbound: &Outbound) -> Result<Self, rustls::Error> {
        let roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = Connector { outbound: outbound.clone(), tls: TlsConnector::from(Arc::new(tls)) };
        let client =
            Client::builder(TokioExecutor::new()).pool_idle_timeout(Duration::from_secs(30)).build(connector);
        Ok(Self { client })
    }

    /// Sends a request and reads the whole response within `timeout`.
    pub(crate) async fn fetch(
        &self,
        request: Request<Full<Bytes>>,
        timeout: Duration,
        max_bytes: usize,
    ) -> Result<HttpResponse, AttemptFailure> {
        let asked = async {
            let answer =
                self.client.request(request).await.map_err(|error| AttemptFailure::unanswered(&error))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, max_bytes).collect().await;
            let body =
                body.map_err(|error| match error.downcast_ref::<http_body_util::LengthLimitError>() {
                    Some(_) => AttemptFailure {
                        class: FailureClass::Parse,
                        error: format!("the response is longer than {max_bytes} bytes"),
                    },
                    None => AttemptFailure::network(&*error),
                })?;
            Ok(HttpResponse { status: head.status, headers: head.headers, body: body.to_bytes() })
        };
        let slow = || AttemptFailure {
            class: FailureClass::Network,
            error: format!("no complete response within {timeout:?}"),
        };
        tokio::time::timeout(timeout, asked).await.unwrap_or_else(|_| Err(slow()))
    }
}

impl AttemptFailure {
    /// There was no response. A denied address is not retried like a network failure: it stays denied.
    fn unanswered(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(connect) = error.downcast_ref::<ConnectError>() {
                let is_denied = matches!(connect, ConnectError::Outbound(OutboundError::Denied(_)));
                let class = if is_denied { FailureClass::Client } else { FailureClass::Network };
                return Self { class, error: connect.to_string() };
            }
            cause = error.source();
        }
        Self::network(error)
    }

    fn network(error: &(dyn std::error::Error + 'static)) -> Self {
        Self { class: FailureClass::Network, error: error_text(error) }
    }

    #[allow(clippy::needless_pass_by_value, reason = "made for `map_err`")]
    pub(crate) fn parse(error: impl ToString) -> Self {
        Self { class: FailureClass::Parse, error: error.to_string() }
    }
}

/// Opens connections, with TLS for https.
#[derive(Clone)]
struct Connector {
    outbound: Outbound,
    tls: TlsConnector,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connector")
    }
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<HttpConnection>;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<TokioIo<HttpConnection>, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect(&uri).await.map(TokioIo::new) })
    }
}

impl Connector {
    async fn connect(&self, uri: &Uri) -> Result<HttpConnection, ConnectError> {
        let host = uri.host().ok_or_else(|| io::Error::other("the URL has no host"))?;
        let bare = host.trim_matches(['[', ']']);
        let encrypted = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
        let stream = self.outbound.connect(bare, port).await?;
        stream.set_nodelay(true)?;
        if !encrypted {
            return Ok(HttpConnection::Plain(stream));
        }
        let name = ServerName::try_from(bare.to_owned()).map_err(io::Error::other)?;
        Ok(HttpConnection::Tls(Box::new(self.tls.connect(name, stream).await?)))
    }
}

/// Why no connection was opened.
#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

enum HttpConnection {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection for HttpConnection {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for HttpConnection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            HttpConnection::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            HttpConnection::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for HttpConnection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            HttpConnection::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            HttpConnection::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            HttpConnection::Plain(stream) => Pin::new(stream).poll_flush(cx),
            HttpConnection::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            HttpConnection::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            HttpConnection::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
