//! A fake of the CourtListener API, for the demo and for tests: dockets in cursor pages, docket entries, a sliding-window
//! throttle like that of Django REST framework, and faults on demand.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{OriginalUri, Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use hyper::body::Bytes;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const ROOT: &str = "/api/rest/v4";

/// What the fake API serves.
#[derive(Clone, Debug)]
pub struct FakeApiConfig {
    pub dockets: u64,
    /// Entries per docket.
    pub entries: u64,
    pub page: u64,
    /// Limit and period of each sliding window.
    pub limits: Vec<(u32, Duration)>,
    /// The required token, if any.
    pub token: Option<String>,
    pub latency: Duration,
}

/// A fault, injected once per call of [`FakeApi::fail`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Status(u16),
    /// The connection closes in the middle of the response.
    Truncated,
    /// A response that is not JSON.
    Garbage,
    /// A response with this many bytes of padding.
    Long(usize),
    /// The cursor is unknown.
    LostCursor,
}

/// A sliding-window throttle: at most `limit` calls in any `period`.
#[derive(Clone, Debug)]
pub struct Throttle {
    limit: usize,
    period: Duration,
    /// Newest first.
    history: VecDeque<Duration>,
}

/// A running fake API. It stops when it is dropped.
#[derive(Debug)]
pub struct FakeApi {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
}

#[derive(Debug)]
struct Shared {
    config: FakeApiConfig,
    begun: Instant,
    throttles: Mutex<Vec<Throttle>>,
    faults: Mutex<HashMap<String, VecDeque<Fault>>>,
    /// Number of changes by docket.
    revisions: Mutex<HashMap<u64, u32>>,
    served: AtomicU64,
    throttled: AtomicU64,
    /// Current and maximum number of concurrent calls.
    in_flight: AtomicU64,
    max_in_flight: AtomicU64,
}

impl Throttle {
    pub fn new(limit: u32, period: Duration) -> Self {
        Self { limit: limit as usize, period, history: VecDeque::new() }
    }

    /// Whether a call is allowed now; if not, how long to wait.
    pub fn check(&mut self, now: Duration) -> Result<(), Duration> {
        while self.history.back().is_some_and(|oldest| *oldest + self.period <= now) {
            self.history.pop_back();
        }
        if self.history.len() < self.limit {
            return Ok(());
        }
        Err(self.history.back().map_or(self.period, |oldest| (*oldest + self.period).saturating_sub(now)))
    }

    /// Counts an allowed call.
    pub fn count(&mut self, now: Duration) {
        self.history.push_front(now);
    }

    pub fn counted(&self) -> usize {
        self.history.len()
    }
}

impl FakeApi {
    /// Listens on a free loopback port.
    pub async fn start(config: FakeApiConfig) -> std::io::Result<Self> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let throttles = config.limits.iter().map(|(limit, period)| Throttle::new(*limit, *period)).collect();
        let shared = Arc::new(Shared {
            config,
            begun: Instant::now(),
            throttles: Mutex::new(throttles),
            faults: Mutex::default(),
            revisions: Mutex::default(),
            served: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            max_in_flight: AtomicU64::new(0),
        });
        let app = Router::new()
            .route(&format!("{ROOT}/dockets/"), get(dockets))
            .route(&format!("{ROOT}/dockets/{{id}}/"), get(docket))
            .route(&format!("{ROOT}/docket-entries/{{id}}/"), get(entry))
            .with_state(Arc::clone(&shared));
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(async move { axum::serve(listener, app).with_graceful_shutdown(stopped).await });
        Ok(Self { address, shared, stop })
    }

    /// The base URL.
    pub fn url(&self) -> String {
        format!("http://{}{ROOT}", self.address)
    }

    /// Makes the next request fail whose path ends with `path`.
    pub fn fail(&self, path: &str, fault: Fault) {
        lock(&self.shared.faults).entry(path.to_owned()).or_default().push_back(fault);
    }

    /// Changes the ETag and the name of a docket.
    pub fn change(&self, docket: u64) {
        *lock(&self.shared.revisions).entry(docket).or_default() += 1;
    }

    /// Number of allowed calls.
    pub fn served(&self) -> u64 {
        self.shared.served.load(Ordering::SeqCst)
    }

    /// Maximum number of concurrent calls.
    pub fn max_concurrent(&self) -> u64 {
        self.shared.max_in_flight.load(Ordering::SeqCst)
    }

    /// Number of calls refused with 429.
    pub fn throttled(&self) -> u64 {
        self.shared.throttled.load(Ordering::SeqCst)
    }
}

impl Drop for FakeApi {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Shared {
    /// Counts a call. Returns the response if the call is refused or a fault is injected.
    async fn admit(&self, path: &str, headers: &HeaderMap) -> Option<Response> {
        if let Some(token) = &self.config.token {
            let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
            if sent != Some(format!("Token {token}").as_str()) {
                return Some(
                    (StatusCode::UNAUTHORIZED, Json(json!({ "detail": "Invalid token." }))).into_response(),
                );
            }
        }
        if let Err(wait) = self.throttle() {
            self.throttled.fetch_add(1, Ordering::SeqCst);
            let seconds = wait.as_millis().div_ceil(1000).to_string();
            let body = json!({ "detail": format!("Request was throttled. Expected available in {seconds} seconds.") });
            let retry = [(header::RETRY_AFTER, seconds)];
            return Some((StatusCode::TOO_MANY_REQUESTS, retry, Json(body)).into_response());
        }
        self.served.fetch_add(1, Ordering::SeqCst);
        let in_flight = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.max_in_flight.fetch_max(in_flight, Ordering::SeqCst);
        tokio::time::sleep(self.config.latency).await;
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        let fault = lock(&self.faults)
            .iter_mut()
            .find(|(end, _)| path.ends_with(*end))
            .and_then(|(_, all)| all.pop_front());
        fault.map(respond_with_fault)
    }

    fn throttle(&self) -> Result<(), Duration> {
        let now = self.begun.elapsed();
        let mut throttles = lock(&self.throttles);
        for throttle in throttles.iter_mut() {
            throttle.check(now)?;
        }
        throttles.iter_mut().for_each(|throttle| throttle.count(now));
        Ok(())
    }
}

fn respond_with_fault(fault: Fault) -> Response {
    match fault {
        Fault::Status(status) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (status, Json(json!({ "detail": "Injected fault." }))).into_response()
        }
        Fault::Garbage => "<html>maintenance</html>".into_response(),
        Fault::Long(bytes) => Json(json!({ "id": 1, "padding": "x".repeat(bytes) })).into_response(),
        Fault::LostCursor => {
            (StatusCode::NOT_FOUND, Json(json!({ "detail": "Invalid cursor" }))).into_response()
        }
        Fault::Truncated => {
            let parts = [Ok(Bytes::from_static(b"{\"id\": 1, ")), Err(std::io::Error::other("cut off"))];
            let mut response = Body::from_stream(futures_util::stream::iter(parts)).into_response();
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("1000"));
            response
        }
    }
}

async fn dockets(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<HashMap<String, String>>,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
) -> Response {
    if let Some(instead) = shared.admit(&uri.to_string(), &headers).await {
        return instead;
    }
    let from: u64 = match query.get("cursor").map(|cursor| cursor.strip_prefix('c').unwrap_or(cursor).parse())
    {
        None => 0,
        Some(Ok(from)) => from,
        Some(Err(_)) => return respond_with_fault(Fault::LostCursor),
    };
    let to = (from + shared.config.page).min(shared.config.dockets);
    let results: Vec<_> = (from + 1..=to).map(|id| json!({ "id": id, "court": court(id) })).collect();
    let next = (to < shared.config.dockets).then(|| format!("?cursor=c{to}"));
    Json(json!({ "next": next, "previous": null, "results": results })).into_response()
}

async fn docket(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<u64>,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
) -> Response {
    if let Some(instead) = shared.admit(&uri.to_string(), &headers).await {
        return instead;
    }
    if id == 0 || id > shared.config.dockets {
        return (StatusCode::NOT_FOUND, Json(json!({ "detail": "Not found." }))).into_response();
    }
    let revision = lock(&shared.revisions).get(&id).copied().unwrap_or_default();
    let etag = format!("\"docket-{id}-{revision}\"");
    if headers.get(header::IF_NONE_MATCH).is_some_and(|seen| seen.as_bytes() == etag.as_bytes()) {
        return StatusCode::NOT_MODIFIED.into_response();
    }
    let entries: Vec<_> = (0..shared.config.entries).map(|n| json!({ "id": id * 1000 + n })).collect();
    let body = json!({
        "id": id,
        "case_name": if revision == 0 { format!("Doe v. Roe No. {id}") } else { format!("Renamed No. {id}") },
        "court": court(id),
        "docket_entries": entries,
    });
    ([(header::ETAG, etag)], Json(body)).into_response()
}

async fn entry(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<u64>,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
) -> Response {
    if let Some(instead) = shared.admit(&uri.to_string(), &headers).await {
        return instead;
    }
    let body = json!({ "id": id, "docket": id / 1000, "description": format!("Entry {id}") });
    Json(body).into_response()
}

fn court(id: u64) -> &'static str {
    ["ca9", "nysd", "cand", "txed"][usize::try_from(id % 4).unwrap_or(0)]
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
