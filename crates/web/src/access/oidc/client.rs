//! The HTTP client for the provider: one request per connection, bounded in time and size, without redirects.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hob_net::{Outbound, OutboundError};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
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

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of a response. Documents of providers have a few KiB.
const MAX_BODY_BYTES: usize = 512 * 1024;

pub(super) struct HttpClient {
    /// The operator has chosen the address of the issuer, so it may be a private one.
    issuer: Origin,
    /// For other hosts, which the issuer names.
    outbound: Outbound,
    tls: TlsConnector,
}

/// A complete response.
#[derive(Debug)]
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// Why there is no response to a request.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    #[error("cannot connect: {0}")]
    Connect(#[from] io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("the response is incomplete or longer than {MAX_BODY_BYTES} bytes: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("the URL cannot be requested: {0}")]
    Url(#[from] http::Error),
    #[error("no response within {TIMEOUT:?}")]
    Timeout,
}

impl HttpClient {
    pub(super) fn new(issuer: &Url, outbound: &Outbound, tls: Arc<ClientConfig>) -> Self {
        Self { issuer: issuer.origin(), outbound: outbound.clone(), tls: tls.into() }
    }

    pub(super) async fn get(&self, url: &Url) -> Result<HttpResponse, ClientError> {
        self.fetch(Method::GET, url, HeaderMap::new(), String::new()).await
    }

    /// Posts a form.
    pub(super) async fn post(
        &self,
        url: &Url,
        mut headers: HeaderMap,
        form: String,
    ) -> Result<HttpResponse, ClientError> {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        self.fetch(Method::POST, url, headers, form).await
    }

    async fn fetch(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: String,
    ) -> Result<HttpResponse, ClientError> {
        let mut request = Request::builder().method(method).uri(&url[url::Position::BeforePath..]);
        request = request.header(header::HOST, &url[url::Position::BeforeHost..url::Position::AfterPort]);
        request = request.header(header::ACCEPT, "application/json");
        let mut request = request.body(Full::new(Bytes::from(body)))?;
        request.headers_mut().extend(headers);
        let fetched = tokio::time::timeout(TIMEOUT, self.send(url, request)).await;
        fetched.unwrap_or(Err(ClientError::Timeout))
    }

    async fn send(&self, url: &Url, request: Request<Full<Bytes>>) -> Result<HttpResponse, ClientError> {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = url.port_or_known_default().unwrap_or_default();
        let stream = if url.origin() == self.issuer {
            TcpStream::connect((host.as_str(), port)).await?
        } else {
            self.outbound.connect(&host, port).await?
        };
        if url.scheme() != "https" {
            return exchange(stream, request).await;
        }
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        exchange(self.tls.connect(name, stream).await?, request).await
    }
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<HttpResponse, ClientError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let response = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, MAX_BODY_BYTES).collect().await.map_err(ClientError::Body)?;
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
