//! Request ids, spans, the access log and request metrics.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;

use crate::server::listener::Peer;

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
const MAX_ID_BYTES: usize = 64;

/// The id of a request, in the log and in the response.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(Arc<str>);

impl RequestId {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The client's own id if it is safe to log, else a new one.
    fn of(request: &Request) -> Self {
        let is_safe = |text: &&str| {
            (1..=MAX_ID_BYTES).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        let given = request.headers().get(&HEADER).and_then(|value| value.to_str().ok()).filter(is_safe);
        given.map_or_else(|| Self(format!("{:016x}", rand::random::<u64>()).into()), |text| Self(text.into()))
    }
}

/// The method as a label. Unknown methods are grouped, since clients may invent any.
fn label(method: &Method) -> String {
    let known = [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::HEAD,
        Method::OPTIONS,
    ];
    if known.contains(method) { method.to_string() } else { "other".to_owned() }
}

/// Gives the request an id and a span, and logs one line for the response. Headers and the query are not logged, since
/// they may contain secrets.
pub(crate) async fn trace(mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = RequestId::of(&request);
    request.extensions_mut().insert(id.clone());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str).to_owned();
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0.ip());
    let span = tracing::info_span!("request", id = id.as_str());
    let mut response = next.run(request).instrument(span).await;
    let status = response.status();
    let took = started.elapsed();
    tracing::info!(
        target: "hob::access",
        id = id.as_str(), %method, path, status = status.as_u16(), ms = took.as_millis() as u64,
        peer = peer.map(tracing::field::display), "request",
    );
    let labels = [("route", route), ("method", label(&method)), ("status", status.as_u16().to_string())];
    metrics::histogram!("hob_http_request_seconds", &labels).record(took.as_secs_f64());
    if let Ok(value) = HeaderValue::from_str(id.as_str()) {
        response.headers_mut().insert(HEADER, value);
    }
    response
}
