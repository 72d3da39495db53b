//! The HTTP client: pooled connections, bounded bodies, a deadline for each request.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
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

use crate::plan::retry::Class;

/// Asks APIs. Clones share their connections.
#[derive(Clone, Debug)]
pub(crate) struct Fetcher {
    client: Client<Connector, Full<Bytes>>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Why there is no usable answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) class: Class,
    pub(crate) error: String,
}

impl Fetcher {
    pub(crate) fn new() -> Result<Self, rustls::Error> {
        let roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = Connector { tls: TlsConnector::from(Arc::new(tls)) };
        let client =
            Client::builder(TokioExecutor::new()).pool_idle_timeout(Duration::from_secs(30)).build(connector);
        Ok(Self { client })
    }

    /// Asks, and reads the whole answer, within `within`.
    pub(crate) async fn fetch(
        &self,
        request: Request<Full<Bytes>>,
        within: Duration,
        most_bytes: usize,
    ) -> Result<Fetched, Failure> {
        let asked = async {
            let answer = self.client.request(request).await.map_err(|error| Failure::network(&error))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, most_bytes).collect().await;
            let body =
                body.map_err(|error| match error.downcast_ref::<http_body_util::LengthLimitError>() {
                    Some(_) => Failure {
                        class: Class::Parse,
                        error: format!("the answer is longer than {most_bytes} bytes"),
                    },
                    None => Failure::network(&*error),
                })?;
            Ok(Fetched { status: head.status, headers: head.headers, body: body.to_bytes() })
        };
        let slow = || Failure { class: Class::Network, error: format!("no whole answer within {within:?}") };
        tokio::time::timeout(within, asked).await.unwrap_or_else(|_| Err(slow()))
    }
}

impl Failure {
    fn network(error: &dyn std::error::Error) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        Self { class: Class::Network, error: text }
    }

    #[allow(clippy::needless_pass_by_value, reason = "made for `map_err`")]
    pub(crate) fn parse(error: impl ToString) -> Self {
        Self { class: Class::Parse, error: error.to_string() }
    }
}

/// Opens connections, with TLS for https.
#[derive(Clone)]
struct Connector {
    tls: TlsConnector,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connector")
    }
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Wire>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<TokioIo<Wire>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let tls = self.tls.clone();
        Box::pin(async move { connect(&uri, tls).await.map(TokioIo::new) })
    }
}

async fn connect(uri: &Uri, tls: TlsConnector) -> io::Result<Wire> {
    let host = uri.host().ok_or_else(|| io::Error::other("a URL without a host"))?;
    let bare = host.trim_matches(['[', ']']);
    let encrypted = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
    let stream = TcpStream::connect((bare, port)).await?;
    stream.set_nodelay(true)?;
    if !encrypted {
        return Ok(Wire::Plain(stream));
    }
    let name = ServerName::try_from(bare.to_owned()).map_err(io::Error::other)?;
    Ok(Wire::Tls(Box::new(tls.connect(name, stream).await?)))
}

enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Wire::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Wire::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
