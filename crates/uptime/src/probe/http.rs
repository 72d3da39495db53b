//! HTTP and HTTPS: one request on one connection, and its response.

use std::time::Instant;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hob_service::config::Mask;
use http::header::{AUTHORIZATION, CONNECTION, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use url::{Position, Url};

use super::redirect::{Hop, RedirectStep};
use super::tls::Alpn;
use super::trace::{Stage, Trace};
use super::{Probe, failure};
use crate::monitor::assertion::Assertion;
use crate::monitor::check::{Auth, Failure, FailureClass, HttpCheck, HttpVersion};
use crate::monitor::secrets;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("hob-uptime/", env!("CARGO_PKG_VERSION")));
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// A larger response head is a failure.
const MAX_HEAD_BYTES: usize = 64 * 1024;
const MAX_HEADERS: usize = 128;

/// The response to the last request of a check.
#[derive(Debug)]
pub struct HttpResponse {
    pub(super) status: http::StatusCode,
    pub headers: HeaderMap,
    /// Empty if no assertion reads it.
    pub body: Vec<u8>,
    /// Hides secrets that the response may repeat.
    pub(super) mask: Mask,
}

/// What happens to a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyPolicy {
    Keep,
    /// Read to the end and counted.
    Discard,
    /// Not read.
    Ignore,
}

impl HttpResponse {
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status.as_u16()
    }
}

impl Probe {
    pub(super) async fn http(
        &self,
        check: &HttpCheck,
        assertions: &[Assertion],
        trace: &mut Trace,
    ) -> Result<HttpResponse, Failure> {
        let body =
            if assertions.iter().any(Assertion::reads_body) { BodyPolicy::Keep } else { BodyPolicy::Discard };
        let (headers, mask) = self.headers(check)?;
        let mut hop = Hop::first(check, headers);
        loop {
            let response = self.request(&hop, check.version, body, trace).await?;
            match hop.after(response.status, &response.headers)? {
                RedirectStep::Final => return Ok(HttpResponse { mask, ..response }),
                RedirectStep::Follow(next) => hop = *next,
            }
            trace.next_hop();
        }
    }

    /// The headers of the check and its credentials, and a mask that hides the secrets among them.
    fn headers(&self, check: &HttpCheck) -> Result<(HeaderMap, Mask), Failure> {
        let mut headers: HeaderMap = check.headers.iter().cloned().collect();
        let mut mask = Mask::default();
        let Some(auth) = &check.auth else { return Ok((headers, mask)) };
        let misconfigured = |message: String| Failure::new(FailureClass::Misconfigured, message);
        let secret = |name| {
            let secret = secrets::read_for_check(&self.inner.secrets, check, name);
            secret.map_err(|refused| misconfigured(refused.to_string()))
        };
        let (scheme, credentials) = match auth {
            Auth::Basic { user, password } => {
                let password = secret(password)?;
                mask.hide(password.reveal());
                ("Basic", BASE64_STANDARD.encode(format!("{user}:{}", password.reveal())))
            }
            Auth::Bearer { token } => ("Bearer", secret(token)?.reveal().to_owned()),
        };
        mask.hide(&credentials);
        let value = HeaderValue::try_from(format!("{scheme} {credentials}"));
        let mut value = value.map_err(|_| {
            misconfigured("the secret contains characters that are not allowed in a header".to_owned())
        })?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
        Ok((headers, mask))
    }

    /// Sends one request on a new connection.
    pub(super) async fn request(
        &self,
        hop: &Hop,
        version: HttpVersion,
        body: BodyPolicy,
        trace: &mut Trace,
    ) -> Result<HttpResponse, Failure> {
        let (Some(host), Some(port)) = (hop.url.host(), hop.url.port_or_known_default()) else {
            return Err(Failure::new(FailureClass::Misconfigured, "the URL has no host"));
        };
        let stream = self.connect(&host, port, trace).await?;
        let exchange = Exchange { hop, body, max_bytes: self.settings().limits.max_body_bytes };
        if hop.url.scheme() != "https" {
            return send(stream, version, exchange, trace).await;
        }
        let stream = self.handshake(stream, &host, Alpn::Http(version), trace).await?;
        let chosen = match (stream.get_ref().1.alpn_protocol(), version) {
            (Some(b"h2"), _) => HttpVersion::Http2,
            (_, HttpVersion::Http2) => {
                return Err(Failure::new(FailureClass::Protocol, "the server does not support HTTP/2"));
            }
            _ => HttpVersion::Http1,
        };
        send(stream, chosen, exchange, trace).await
    }
}

/// A request, and what happens to the body of its response.
#[derive(Clone, Copy)]
struct Exchange<'a> {
    hop: &'a Hop,
    body: BodyPolicy,
    max_bytes: usize,
}

async fn send<S>(
    stream: S,
    version: HttpVersion,
    exchange: Exchange<'_>,
    trace: &mut Trace,
) -> Result<HttpResponse, Failure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    trace.stage = Stage::Response;
    let started = Instant::now();
    let io = TokioIo::new(stream);
    if version == HttpVersion::Http2 {
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.max_header_list_size(MAX_HEAD_BYTES as u32);
        let (mut sender, connection) =
            builder.handshake(io).await.map_err(|error| failure::from_hyper(&error))?;
        let response = sender.send_request(build_request(exchange.hop, version)?);
        return drive(connection, read(response, exchange, started, trace)).await;
    }
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder.max_headers(MAX_HEADERS).max_header_size(MAX_HEAD_BYTES);
    let (mut sender, connection) =
        builder.handshake(io).await.map_err(|error| failure::from_hyper(&error))?;
    let response = sender.send_request(build_request(exchange.hop, version)?);
    drive(connection, read(response, exchange, started, trace)).await
}

/// Polls a connection while the response is read from it, in one task: dropping the future closes the connection.
async fn drive<T>(connection: impl Future, reading: impl Future<Output = T>) -> T {
    let mut reading = std::pin::pin!(reading);
    tokio::select! {
        biased;
        read = &mut reading => return read,
        // The server closed the connection; what it sent before can still be read.
        _ = connection => {}
    }
    reading.await
}

fn build_request(hop: &Hop, version: HttpVersion) -> Result<Request<Full<Bytes>>, Failure> {
    let unfit = || Failure::new(FailureClass::Misconfigured, "the URL cannot be requested");
    let mut request = Request::new(Full::new(hop.body.clone()));
    *request.method_mut() = hop.method.clone();
    let headers = request.headers_mut();
    headers.extend(hop.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
    headers.entry(USER_AGENT).or_insert(AGENT);
    let host = match headers.remove(HOST) {
        Some(host) => host,
        None => HeaderValue::try_from(authority(&hop.url)).map_err(|_| unfit())?,
    };
    if version == HttpVersion::Http2 {
        *request.version_mut() = http::Version::HTTP_2;
        let uri = Uri::builder().scheme(hop.url.scheme()).authority(host.as_bytes());
        *request.uri_mut() = uri.path_and_query(path(&hop.url)).build().map_err(|_| unfit())?;
    } else {
        headers.insert(HOST, host);
        // There is no second request. The side that closes first keeps its port in TIME_WAIT: better the server, which
        // uses one port, than this node, which needs a new one for every check.
        headers.insert(CONNECTION, CLOSE);
        let path: PathAndQuery = path(&hop.url).parse().map_err(|_| unfit())?;
        *request.uri_mut() = Uri::from(path);
    }
    Ok(request)
}

fn authority(url: &Url) -> &str {
    &url[Position::BeforeHost..Position::AfterPort]
}

fn path(url: &Url) -> &str {
    &url[Position::BeforePath..Position::AfterQuery]
}

async fn read(
    response: impl Future<Output = hyper::Result<Response<Incoming>>>,
    exchange: Exchange<'_>,
    started: Instant,
    trace: &mut Trace,
) -> Result<HttpResponse, Failure> {
    let response = response.await.map_err(|error| failure::from_hyper(&error))?;
    trace.phases.first_byte = Some(started.elapsed());
    trace.stage = Stage::Body;
    let (head, incoming) = response.into_parts();
    let mut response =
        HttpResponse { status: head.status, headers: head.headers, body: Vec::new(), mask: Mask::default() };
    if exchange.body != BodyPolicy::Ignore && !exchange.hop.is_followed(response.status, &response.headers) {
        response.body =
            read_body(incoming, exchange).await.map_err(|failure| failure.with_status(response.status()))?;
    }
    Ok(response)
}

async fn read_body(mut incoming: Incoming, exchange: Exchange<'_>) -> Result<Vec<u8>, Failure> {
    let mut kept = Vec::new();
    let mut length = 0;
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|error| failure::from_hyper(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        length += data.len();
        if length > exchange.max_bytes {
            let message = format!("the body has more than {} bytes", exchange.max_bytes);
            return Err(Failure::new(FailureClass::Protocol, message));
        }
        if exchange.body == BodyPolicy::Keep {
            kept.extend_from_slice(data);
        }
    }
    Ok(kept)
}
