//! Forwards a request to an upstream, and to another one if that fails and a retry is safe.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hob_admission::CheckedRequest;
use hob_net::{Client, client_tls};
use http::header::{CONTENT_TYPE, HOST, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{Either, Empty, Full};
use hyper::body::{Body as _, Incoming};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::RwLock;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use super::headers::{self, Scheme};
use super::malformed;
use super::pool::{RequestBody, ResponseBody, SendError};
use super::upload::{ClientBody, WaitsFor};
use super::upstream::{InFlight, Upstream, Upstreams};
use crate::Error;
use crate::config::Config;

/// The body of a response: an upstream's as it arrives, or a short text.
pub(crate) type ProxyBody = Either<ResponseBody, Full<Bytes>>;
pub(crate) type ProxyResponse = Response<ProxyBody>;

/// Forwards requests. Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct Forwarder {
    inner: Arc<RwLock<Arc<Settings>>>,
}

/// Upstreams and timeouts, replaced as a whole.
#[derive(Debug)]
pub(crate) struct Settings {
    upstreams: Upstreams,
    connect_timeout: Duration,
    response_timeout: Duration,
    retries: u32,
    /// The protocols that a connection may be upgraded to.
    upgrades: Vec<String>,
}

/// A client's connection that may be upgraded.
struct ClientUpgrade {
    requested: Vec<String>,
    on_upgrade: OnUpgrade,
    force_close: CancellationToken,
}

/// A client's connection.
#[derive(Clone, Debug)]
pub(crate) struct ClientConnection {
    pub(crate) peer: SocketAddr,
    pub(crate) scheme: Scheme,
    /// The peer's address as a header value.
    peer_header: HeaderValue,
    /// Cancelled when the proxy has stopped; then upgraded connections are closed too.
    force_close: CancellationToken,
}

impl ClientConnection {
    pub(crate) fn new(Client { address: peer, secure, force_close, .. }: Client) -> Self {
        let scheme = if secure { Scheme::Https } else { Scheme::Http };
        let peer_header = HeaderValue::try_from(peer.ip().to_canonical().to_string())
            .expect("an address is a valid header value");
        Self { peer, scheme, peer_header, force_close }
    }
}

/// The TLS client for https upstreams.
pub(super) fn connector(roots: Option<&Path>) -> Result<TlsConnector, Error> {
    client_tls(roots).map(TlsConnector::from).map_err(|error| Error::Config(error.to_string()))
}

impl Forwarder {
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let none = Upstreams::new(&[], &connector(None)?).map_err(bad_upstream)?;
        Ok(Self { inner: Arc::new(RwLock::new(Arc::new(Settings::new(config, &none)?))) })
    }

    /// Reads another configuration. An upstream that stays keeps its connections.
    pub(crate) fn read(&self, config: &Config) -> Result<Settings, Error> {
        Settings::new(config, &self.settings().upstreams)
    }

    /// Applies settings to the next requests.
    pub(crate) fn replace(&self, settings: Settings) {
        *self.inner.write() = Arc::new(settings);
    }

    fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.inner.read())
    }

    /// Forwards a request, and returns the upstream's response or an error response.
    pub(crate) async fn forward(
        &self,
        mut request: Request<Incoming>,
        client: &ClientConnection,
        checked: &CheckedRequest,
    ) -> ProxyResponse {
        if request.method() == Method::CONNECT {
            return text_response(StatusCode::METHOD_NOT_ALLOWED, "CONNECT is not supported.");
        }
        let settings = self.settings();
        // Other upgrades are ignored, as RFC 9110 allows: what follows them would be neither counted nor limited.
        let mut requested = headers::strip_hop_by_hop(request.headers_mut());
        requested.retain(|protocol| contains_protocol(&settings.upgrades, protocol));
        // Only HTTP/1.1 has this kind of upgrade.
        let client_upgrade = if requested.is_empty() || request.version() != Version::HTTP_11 {
            None
        } else {
            let on_upgrade = hyper::upgrade::on(&mut request);
            Some(ClientUpgrade { requested, on_upgrade, force_close: client.force_close.clone() })
        };
        let (uri, version) = (request.uri().clone(), request.version());
        let CheckedRequest { client: address, forwarding_header, .. } = *checked;
        let from = headers::RequestSource {
            peer: &client.peer_header,
            client: address,
            forwarding_header,
            scheme: client.scheme,
        };
        headers::rewrite_request(request.headers_mut(), (&uri, version), &from);
        if let Some(upgrade) = &client_upgrade {
            headers::keep_upgrade(request.headers_mut(), &upgrade.requested);
        }
        match settings.send(request).await {
            Ok(response) => response_to_client(response, client_upgrade),
            Err(failure) => failure.answer(),
        }
    }

    /// Checks the health of every upstream, and closes idle connections.
    pub(crate) async fn check_health(&self, path: Option<&PathAndQuery>) {
        let settings = self.settings();
        let check = |upstream: Arc<Upstream>| {
            let settings = &settings;
            async move {
                upstream.pool.sweep();
                let Some(path) = path else { return };
                let mut request = Request::new(Either::Right(Empty::new()));
                *request.uri_mut() = path.clone().into();
                let within = settings.response_timeout.min(Duration::from_secs(5));
                let answer = tokio::time::timeout(within, settings.send_to(request, &upstream)).await;
                upstream.set_health(match answer {
                    Ok(Ok(response)) if response.status().as_u16() < 500 => Ok(()),
                    Ok(Ok(response)) => Err(format!("status {}", response.status().as_u16())),
                    Ok(Err(error)) => Err(error.to_string()),
                    Err(_) => Err("no response in time".to_owned()),
                });
            }
        };
        futures_util::future::join_all(settings.upstreams.all().iter().cloned().map(check)).await;
    }
}

impl Settings {
    fn new(config: &Config, before: &Upstreams) -> Result<Self, Error> {
        let roots = config.upstream_ca_file.as_deref().map(Path::new);
        let tls = connector(roots)?;
        Ok(Self {
            upstreams: before.with_addresses(&config.upstream, &tls).map_err(bad_upstream)?,
            connect_timeout: config.connect_timeout.get(),
            response_timeout: config.response_timeout.get(),
            retries: config.retries,
            upgrades: config.upgrades.clone(),
        })
    }

    /// Sends a request, and sends it again to another upstream if that is safe.
    async fn send(&self, request: Request<Incoming>) -> Result<Response<ResponseBody>, ForwardFailure> {
        let (mut parts, body) = request.into_parts();
        parts.version = Version::HTTP_11;
        malformed::describe_body(&mut parts.headers, &body);
        // The upstream gets the path only; the authority is in Host.
        if parts.uri.authority().is_some() {
            let path = parts.uri.path_and_query().cloned();
            parts.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
        }
        let mut tried: Vec<InFlight> = Vec::new();
        let mut last = ForwardFailure::NoUpstream;
        // A streamed body cannot be sent twice.
        let has_body = !body.is_end_stream();
        let retries = if has_body { 0 } else { self.retries as usize };
        let mut next_request = Some((
            parts,
            if has_body { Either::Left(ClientBody::new(body)) } else { Either::Right(Empty::new()) },
        ));
        while let Some(picked) = self.upstreams.pick(&tried) {
            let may_retry = tried.len() < retries && self.upstreams.all().len() > tried.len() + 1;
            let Some((parts, body)) = next_request.take() else { break };
            if may_retry {
                next_request = Some((parts.clone(), Either::Right(Empty::new())));
            }
            let method = parts.method.clone();
            match self.try_once(Request::from_parts(parts, body), &picked).await {
                Ok(response) => return Ok(response),
                Err(failure) => last = failure,
            }
            tried.push(picked);
            if !last.is_retryable(&method) {
                break;
            }
        }
        Err(last)
    }

    async fn try_once(
        &self,
        request: Request<RequestBody>,
        picked: &InFlight,
    ) -> Result<Response<ResponseBody>, ForwardFailure> {
        let failure = match self.send_in_time(request, picked.upstream()).await {
            Ok(Ok(response)) => {
                self.upstreams.record_success(picked);
                return Ok(response);
            }
            // The upstream is not to blame.
            Err(WaitsFor::Client) => return Err(ForwardFailure::ClientTimedOut),
            Err(WaitsFor::Upstream) => {
                picked.upstream().log_failure("no response in time");
                ForwardFailure::TimedOut
            }
            Ok(Err(error)) => {
                picked.upstream().log_failure(&error.to_string());
                match error {
                    SendError::NotSent(_) => ForwardFailure::NotReached,
                    SendError::Interrupted(_) => ForwardFailure::Interrupted,
                }
            }
        };
        self.upstreams.record_failure(picked);
        Err(failure)
    }

    /// Sends a request, and waits for the response to begin. The timeout starts again with every part of the body, so that
    /// an upload can take longer. Returns what did not happen in time: the client's next part, or the response.
    async fn send_in_time(
        &self,
        request: Request<RequestBody>,
        upstream: &Upstream,
    ) -> Result<Result<Response<ResponseBody>, SendError>, WaitsFor> {
        let upload = match request.body() {
            Either::Left(body) => Some(body.upload()),
            Either::Right(_) => None,
        };
        let mut sending = std::pin::pin!(self.send_to(request, upstream));
        let mut deadline = Instant::now() + self.response_timeout;
        loop {
            if let Ok(answer) = tokio::time::timeout_at(deadline.into(), &mut sending).await {
                return Ok(answer);
            }
            let Some(upload) = &upload else { return Err(WaitsFor::Upstream) };
            let (progress_at, waits_for) = upload.progress();
            if progress_at + self.response_timeout <= deadline {
                return Err(waits_for);
            }
            deadline = progress_at + self.response_timeout;
        }
    }

    async fn send_to(
        &self,
        mut request: Request<RequestBody>,
        upstream: &Upstream,
    ) -> Result<Response<ResponseBody>, SendError> {
        // HTTP/1.0 requests may lack Host, HTTP/1.1 requests must have it.
        if !request.headers().contains_key(HOST)
            && let Ok(host) = HeaderValue::from_str(upstream.authority().as_str())
        {
            request.headers_mut().insert(HOST, host);
        }
        upstream.pool.send(request, &upstream.target, self.connect_timeout).await
    }
}

#[allow(clippy::needless_pass_by_value, reason = "made for `map_err`")]
fn bad_upstream(upstream: super::upstream::BadUpstream) -> Error {
    Error::Config(upstream.to_string())
}

/// Why no upstream responded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForwardFailure {
    NoUpstream,
    /// No connection: the upstream did not see the request.
    NotReached,
    /// The connection broke before a response: the upstream may have seen the request.
    Interrupted,
    TimedOut,
    /// The client stopped sending the body.
    ClientTimedOut,
}

impl ForwardFailure {
    /// Whether the request may be sent to another upstream. After a timeout there is no time left.
    fn is_retryable(self, method: &Method) -> bool {
        match self {
            Self::NotReached => true,
            Self::Interrupted => method.is_idempotent(),
            Self::NoUpstream | Self::TimedOut | Self::ClientTimedOut => false,
        }
    }

    fn answer(self) -> ProxyResponse {
        match self {
            Self::NoUpstream => text_response(StatusCode::SERVICE_UNAVAILABLE, "No upstream is configured."),
            Self::NotReached => text_response(StatusCode::BAD_GATEWAY, "The upstream cannot be reached."),
            Self::Interrupted => {
                text_response(StatusCode::BAD_GATEWAY, "The upstream closed the connection.")
            }
            Self::TimedOut => text_response(StatusCode::GATEWAY_TIMEOUT, "The upstream timed out."),
            Self::ClientTimedOut => text_response(
                StatusCode::REQUEST_TIMEOUT,
                "The body of the request was not received in time.",
            ),
        }
    }
}

/// The upstream's response for the client. After a 101, copies bytes both ways until one side closes or the proxy
/// stops.
fn response_to_client(
    mut response: Response<ResponseBody>,
    client_upgrade: Option<ClientUpgrade>,
) -> ProxyResponse {
    let protocols = headers::strip_hop_by_hop(response.headers_mut());
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let is_requested = |upgrade: &ClientUpgrade| {
            !protocols.is_empty()
                && protocols.iter().all(|protocol| contains_protocol(&upgrade.requested, protocol))
        };
        let Some(ClientUpgrade { on_upgrade, force_close, .. }) = client_upgrade.filter(is_requested) else {
            return text_response(
                StatusCode::BAD_GATEWAY,
                "The upstream switched protocols without a request.",
            );
        };
        headers::keep_upgrade(response.headers_mut(), &protocols);
        let upstream_upgrade = hyper::upgrade::on(&mut response);
        tokio::spawn(force_close.run_until_cancelled_owned(async move {
            let Ok((client, upstream)) = tokio::try_join!(on_upgrade, upstream_upgrade) else { return };
            let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
            // Either side may close or disappear at any time.
            let _ = tokio::io::copy_bidirectional(&mut client, &mut upstream).await;
        }));
        let (parts, body) = response.into_parts();
        body.detach();
        return Response::from_parts(parts, Either::Right(Full::default()));
    }
    response.map(Either::Left)
}

fn contains_protocol(protocols: &[String], protocol: &str) -> bool {
    protocols.iter().any(|known| known.eq_ignore_ascii_case(protocol))
}

pub(crate) fn text_response(status: StatusCode, message: &'static str) -> ProxyResponse {
    let mut response = Response::new(Either::Right(Full::new(Bytes::from_static(message.as_bytes()))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
