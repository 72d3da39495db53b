//! An HTTP client for a few requests: one request per connection, bounded in time and size, without redirects.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::{Origin, Url};

use crate::{Outbound, OutboundError};

/// How long a request may take by default.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of a response by default.
const MAX_BODY_BYTES: usize = 512 * 1024;

/// Sends requests. Clones share their settings.
#[derive(Clone)]
pub struct HttpClient {
    outbound: Outbound,
    tls: TlsConnector,
    /// The operator has chosen this origin, so its address may be a private one.
    trusted: Option<Origin>,
    timeout: Duration,
    max_body_bytes: usize,
}

/// A complete response.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: StatusCode,
    pub body: Bytes,
}

/// Why there is no response to a request.
#[derive(Debug, thiserror::Error)]
pub enum HttpClientError {
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    #[error("cannot connect: {0}")]
    Connect(#[from] io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("the response is incomplete or longer than {max_bytes} bytes: {source}")]
    Body { max_bytes: usize, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the URL cannot be requested: {0}")]
    Url(#[from] http::Error),
    #[error("no response within {0:?}")]
    Timeout(Duration),
}

impl HttpClient {
    /// A client that connects only to allowed addresses.
    #[must_use]
    pub fn new(outbound: &Outbound, tls: Arc<ClientConfig>) -> Self {
        Self {
            outbound: outbound.clone(),
            tls: tls.into(),
            trusted: None,
            timeout: TIMEOUT,
            max_body_bytes: MAX_BODY_BYTES,
        }
    }

    /// Also connects to the origin of a URL, whatever its address.
    #[must_use]
    pub fn trusting(mut self, url: &Url) -> Self {
        self.trusted = Some(url.origin());
        self
    }

    /// How long a request may take.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The maximum size of a response.
    #[must_use]
    pub fn with_max_body_bytes(mut self, max: usize) -> Self {
        self.max_body_bytes = max;
        self
    }

    pub async fn get(&self, url: &Url) -> Result<HttpResponse, HttpClientError> {
        self.request(Method::GET, url, HeaderMap::new(), Bytes::new()).await
    }

    pub async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: impl Into<Bytes>,
    ) -> Result<HttpResponse, HttpClientError> {
        self.request(Method::POST, url, headers, body.into()).await
    }

    pub async fn request(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<HttpResponse, HttpClientError> {
        let mut request =
            Request::builder().method(method).uri(&url[url::Position::BeforePath..url::Position::AfterQuery]);
        request = request.header(header::HOST, &url[url::Position::BeforeHost..url::Position::AfterPort]);
        request = request.header(header::ACCEPT, "application/json");
        let mut request = request.body(Full::new(body))?;
        request.headers_mut().extend(headers);
        let fetched = tokio::time::timeout(self.timeout, self.send(url, request)).await;
        fetched.unwrap_or(Err(HttpClientError::Timeout(self.timeout)))
    }

    async fn send(&self, url: &Url, request: Request<Full<Bytes>>) -> Result<HttpResponse, HttpClientError> {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = url.port_or_known_default().unwrap_or_default();
        let stream = if self.trusted.as_ref() == Some(&url.origin()) {
            TcpStream::connect((host.as_str(), port)).await?
        } else {
            self.outbound.connect(&host, port).await?
        };
        if url.scheme() != "https" {
            return exchange(stream, request, self.max_body_bytes).await;
        }
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        exchange(self.tls.connect(name, stream).await?, request, self.max_body_bytes).await
    }
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpClient")
            .field("trusted", &self.trusted)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

async fn exchange<S>(
    stream: S,
    request: Request<Full<Bytes>>,
    max_bytes: usize,
) -> Result<HttpResponse, HttpClientError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let response = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, max_bytes).collect().await;
        let body = body.map_err(|source| HttpClientError::Body { max_bytes, source })?;
        Ok(HttpResponse { status: head.status, body: body.to_bytes() })
    };
    let mut response = std::pin::pin!(response);
    // The connection is driven in the task of the request, so that it is closed when the request times out.
    tokio::select! {
        biased;
        response = &mut response => return response,
        // The server has closed the connection. The data that it sent before can still be read.
        _ = connection => {}
    }
    response.await
}
