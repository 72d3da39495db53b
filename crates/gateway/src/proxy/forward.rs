//! Passing a request on: to an upstream that answers, once, or again where that does no harm.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::{Either, Empty, Full};
use hyper::body::{Body as _, Incoming};
use hyper::upgrade::OnUpgrade;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::headers::{self, Scheme};
use super::upstream::{Health, InFlight, Upstreams};
use crate::admission::Admission;
use crate::config::Config;
use crate::identity::Origin;

/// What clients get: an upstream's body as it comes in, or a few words of ours.
pub(crate) type Answer = Response<Either<Incoming, Full<Bytes>>>;
/// What upstreams get.
type Sent = Either<Incoming, Empty<Bytes>>;

const IDLE_FOR: Duration = Duration::from_secs(30);
const MOST_IDLE: usize = 512;

/// Passes requests on. Clones are handles to the same.
#[derive(Clone, Debug)]
pub(crate) struct Forwarder {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: Client<HttpConnector, Sent>,
    upstreams: Upstreams,
    answer_within: Duration,
    retries: u32,
}

/// A request as it came in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) peer: SocketAddr,
    pub(crate) scheme: Scheme,
}

impl Forwarder {
    pub(crate) fn new(config: &Config) -> Result<Self, super::upstream::BadUpstream> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(config.connect_within.get()));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_FOR)
            .pool_max_idle_per_host(MOST_IDLE)
            .build(connector);
        let upstreams = Upstreams::new(&config.upstream)?;
        let (answer_within, retries) = (config.answer_within.get(), config.retries);
        Ok(Self { inner: Arc::new(Inner { client, upstreams, answer_within, retries }) })
    }

    /// Passes a request on and answers with what comes back, or with why nothing does.
    pub(crate) async fn forward(
        &self,
        mut request: Request<Incoming>,
        arrival: Arrival,
        admission: &Admission,
    ) -> Answer {
        if request.method() == Method::CONNECT {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "CONNECT is not for a gateway.");
        }
        let policy = admission.policy();
        let origin = policy.trust.origin(arrival.peer, request.headers());
        let protocol = headers::strip_hop_by_hop(request.headers_mut());
        // Only HTTP/1.1 has upgrades of this kind.
        let upgrade = match protocol {
            Some(protocol) if request.version() == Version::HTTP_11 => {
                Some((hyper::upgrade::on(&mut request), protocol))
            }
            _ => None,
        };
        let (uri, version) = (request.uri().clone(), request.version());
        let from: (SocketAddr, Origin, _, Scheme) =
            (arrival.peer, origin, policy.trust.chain, arrival.scheme);
        headers::prepare(request.headers_mut(), (&uri, version), from);
        let mut client_side = None;
        if let Some((on_upgrade, protocol)) = upgrade {
            headers::keep_upgrade(request.headers_mut(), protocol);
            client_side = Some(on_upgrade);
        }
        match self.send(request).await {
            Ok(response) => passed_back(response, client_side),
            Err(failure) => failure.answer(),
        }
    }

    /// Sends a request, again to another upstream if that does no harm.
    async fn send(&self, request: Request<Incoming>) -> Result<Response<Incoming>, Failure> {
        let (mut parts, body) = request.into_parts();
        parts.version = Version::HTTP_11;
        let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let Inner { upstreams, .. } = &*self.inner;
        if !body.is_end_stream() {
            // What is streamed cannot be sent twice.
            let used = upstreams.pick(&[]).ok_or(Failure::NoUpstream)?;
            parts.uri = used.upstream().target(path);
            return self.try_once(Request::from_parts(parts, Either::Left(body)), &used).await;
        }
        let mut tried: Vec<InFlight> = Vec::new();
        let mut last = Failure::NoUpstream;
        while let Some(used) = upstreams.pick(&tried) {
            parts.uri = used.upstream().target(path.clone());
            match self.try_once(Request::from_parts(parts.clone(), Either::Right(Empty::new())), &used).await
            {
                Ok(response) => return Ok(response),
                Err(failure) => last = failure,
            }
            tried.push(used);
            if tried.len() > self.inner.retries as usize || !last.may_try_again(&parts.method) {
                break;
            }
        }
        Err(last)
    }

    async fn try_once(&self, request: Request<Sent>, used: &InFlight) -> Result<Response<Incoming>, Failure> {
        let Inner { client, upstreams, answer_within, .. } = &*self.inner;
        match tokio::time::timeout(*answer_within, client.request(request)).await {
            Ok(Ok(response)) => {
                upstreams.succeeded(used);
                Ok(response)
            }
            Ok(Err(error)) => {
                upstreams.failed(used);
                tracing::debug!(upstream = %used.upstream().authority(), %error, "an upstream failed");
                Err(if error.is_connect() { Failure::NotReached } else { Failure::BrokeOff })
            }
            Err(_) => {
                upstreams.failed(used);
                Err(Failure::TooSlow)
            }
        }
    }

    /// Asks every upstream for its health path.
    pub(crate) async fn examine(&self, path: &PathAndQuery) {
        let Inner { client, upstreams, answer_within, .. } = &*self.inner;
        let within = (*answer_within).min(Duration::from_secs(5));
        let ask = |upstream: Arc<super::upstream::Upstream>| async move {
            let mut request = Request::new(Either::Right(Empty::new()));
            *request.uri_mut() = upstream.target(path.clone());
            let answer = tokio::time::timeout(within, client.request(request)).await;
            let well = matches!(&answer, Ok(Ok(response)) if response.status().as_u16() < 500);
            upstream.examined(if well { Health::Well } else { Health::Unwell });
        };
        futures_util::future::join_all(upstreams.all().iter().cloned().map(ask)).await;
    }
}

/// Why no upstream answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    NoUpstream,
    /// No connection: the request was certainly not seen.
    NotReached,
    /// The connection broke before an answer: nobody knows.
    BrokeOff,
    TooSlow,
}

impl Failure {
    /// Whether the same request may go to another upstream. One that was slow has had its time.
    fn may_try_again(self, method: &Method) -> bool {
        match self {
            Self::NotReached => true,
            Self::BrokeOff => method.is_idempotent(),
            Self::NoUpstream | Self::TooSlow => false,
        }
    }

    fn answer(self) -> Answer {
        match self {
            Self::NoUpstream => plain(StatusCode::SERVICE_UNAVAILABLE, "There is no upstream."),
            Self::NotReached => plain(StatusCode::BAD_GATEWAY, "The upstream cannot be reached."),
            Self::BrokeOff => plain(StatusCode::BAD_GATEWAY, "The upstream broke off."),
            Self::TooSlow => plain(StatusCode::GATEWAY_TIMEOUT, "The upstream did not answer in time."),
        }
    }
}

/// An upstream's response for the client; after a 101 the two talk to each other.
fn passed_back(mut response: Response<Incoming>, client_side: Option<OnUpgrade>) -> Answer {
    let protocol = headers::strip_hop_by_hop(response.headers_mut());
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let (Some(client_side), Some(protocol)) = (client_side, protocol) else {
            return plain(StatusCode::BAD_GATEWAY, "The upstream switched protocols unasked.");
        };
        headers::keep_upgrade(response.headers_mut(), protocol);
        let upstream_side = hyper::upgrade::on(&mut response);
        tokio::spawn(async move {
            let Ok((client, upstream)) = tokio::try_join!(client_side, upstream_side) else { return };
            let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
            // Either side ends it as it likes, also by vanishing.
            let _ = tokio::io::copy_bidirectional(&mut client, &mut upstream).await;
        });
    }
    response.map(Either::Left)
}

/// A few words of ours.
pub(crate) fn plain(status: StatusCode, words: &'static str) -> Answer {
    let mut response = Response::new(Either::Right(Full::new(Bytes::from_static(words.as_bytes()))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
