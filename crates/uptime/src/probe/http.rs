//! HTTP(S): one request on one connection, and what came back.

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

use super::redirect::{Hop, Way};
use super::tls::Offer;
use super::trace::{Stage, Trace};
use super::{Probe, fault};
use crate::monitor::assertion::Assertion;
use crate::monitor::check::{Auth, Failure, FailureClass, HttpCheck, HttpVersion};
use crate::monitor::secrets;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("hob-uptime/", env!("CARGO_PKG_VERSION")));
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// A head of an answer that is larger is a failure.
const LARGEST_HEAD_BYTES: usize = 64 * 1024;
const MOST_HEADERS: usize = 128;

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub(super) status: http::StatusCode,
    pub headers: HeaderMap,
    /// Empty where nobody asked to keep it.
    pub body: Vec<u8>,
    /// What it may repeat and nobody is to see.
    pub(super) mask: Mask,
}

/// What becomes of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Keep,
    /// Read to its end, and counted.
    Discard,
    /// Not even read.
    Ignore,
}

impl Answer {
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
    ) -> Result<Answer, Failure> {
        let body = if assertions.iter().any(Assertion::reads_body) { Body::Keep } else { Body::Discard };
        let (headers, mask) = self.headers(check)?;
        let mut hop = Hop::first(check, headers);
        loop {
            let answer = self.ask(&hop, check.version, body, trace).await?;
            match hop.after(answer.status, &answer.headers)? {
                Way::Here => return Ok(Answer { mask, ..answer }),
                Way::On(next) => hop = *next,
            }
            trace.next_hop();
        }
    }

    /// The headers that a check sends: its own, and who it is. The mask hides what of them is secret.
    fn headers(&self, check: &HttpCheck) -> Result<(HeaderMap, Mask), Failure> {
        let mut headers: HeaderMap = check.headers.iter().cloned().collect();
        let mut mask = Mask::default();
        let Some(auth) = &check.auth else { return Ok((headers, mask)) };
        let misconfigured = |message: String| Failure::new(FailureClass::Misconfigured, message);
        let secret = |name| {
            let secret = secrets::for_check(&self.inner.secrets, check, name);
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
        let mut value = value.map_err(|_| misconfigured("the secret cannot stand in a header".to_owned()))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
        Ok((headers, mask))
    }

    /// One request, on a connection of its own.
    pub(super) async fn ask(
        &self,
        hop: &Hop,
        version: HttpVersion,
        body: Body,
        trace: &mut Trace,
    ) -> Result<Answer, Failure> {
        let (Some(host), Some(port)) = (hop.url.host(), hop.url.port_or_known_default()) else {
            return Err(Failure::new(FailureClass::Misconfigured, "the URL has no host"));
        };
        let stream = self.connect(&host, port, trace).await?;
        let reading = Reading { hop, body, most: self.inner.limits.largest_body_bytes };
        if hop.url.scheme() != "https" {
            return exchange(stream, version, reading, trace).await;
        }
        let stream = self.secure(stream, &host, Offer::Http(version), trace).await?;
        let chosen = match (stream.get_ref().1.alpn_protocol(), version) {
            (Some(b"h2"), _) => HttpVersion::Http2,
            (_, HttpVersion::Http2) => {
                return Err(Failure::new(FailureClass::Protocol, "the server does not speak HTTP/2"));
            }
            _ => HttpVersion::Http1,
        };
        exchange(stream, chosen, reading, trace).await
    }
}

/// What is asked, and what is done with the answer.
#[derive(Clone, Copy)]
struct Reading<'a> {
    hop: &'a Hop,
    body: Body,
    most: usize,
}

async fn exchange<S>(
    stream: S,
    version: HttpVersion,
    reading: Reading<'_>,
    trace: &mut Trace,
) -> Result<Answer, Failure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    trace.stage = Stage::Answer;
    let begun = Instant::now();
    let io = TokioIo::new(stream);
    if version == HttpVersion::Http2 {
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.max_header_list_size(LARGEST_HEAD_BYTES as u32);
        let (mut sender, connection) = builder.handshake(io).await.map_err(|error| fault::of_http(&error))?;
        let response = sender.send_request(request(reading.hop, version)?);
        return drive(connection, read(response, reading, begun, trace)).await;
    }
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder.max_headers(MOST_HEADERS).max_header_size(LARGEST_HEAD_BYTES);
    let (mut sender, connection) = builder.handshake(io).await.map_err(|error| fault::of_http(&error))?;
    let response = sender.send_request(request(reading.hop, version)?);
    drive(connection, read(response, reading, begun, trace)).await
}

/// Moves a connection along while something is read from it, all in one task: when that is dropped, so is the
/// connection.
async fn drive<T>(connection: impl Future, reading: impl Future<Output = T>) -> T {
    let mut reading = std::pin::pin!(reading);
    tokio::select! {
        biased;
        read = &mut reading => return read,
        // Closed by the other side, and what it sent before is still to be read.
        _ = connection => {}
    }
    reading.await
}

fn request(hop: &Hop, version: HttpVersion) -> Result<Request<Full<Bytes>>, Failure> {
    let unfit = || Failure::new(FailureClass::Misconfigured, "the URL cannot be asked for");
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
        // There is no second request. And whoever closes first keeps the port for a minute: better the server,
        // which has one, than us, who need a new one for each check.
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
    reading: Reading<'_>,
    begun: Instant,
    trace: &mut Trace,
) -> Result<Answer, Failure> {
    let response = response.await.map_err(|error| fault::of_http(&error))?;
    trace.phases.first_byte = Some(begun.elapsed());
    trace.stage = Stage::Body;
    let (head, incoming) = response.into_parts();
    let mut answer =
        Answer { status: head.status, headers: head.headers, body: Vec::new(), mask: Mask::default() };
    if reading.body != Body::Ignore && !reading.hop.leads_on(answer.status, &answer.headers) {
        answer.body =
            read_body(incoming, reading).await.map_err(|failure| failure.with_status(answer.status()))?;
    }
    Ok(answer)
}

async fn read_body(mut incoming: Incoming, reading: Reading<'_>) -> Result<Vec<u8>, Failure> {
    let mut kept = Vec::new();
    let mut length = 0;
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|error| fault::of_http(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        length += data.len();
        if length > reading.most {
            let message = format!("the body has more than {} bytes", reading.most);
            return Err(Failure::new(FailureClass::Protocol, message));
        }
        if reading.body == Body::Keep {
            kept.extend_from_slice(data);
        }
    }
    Ok(kept)
}
