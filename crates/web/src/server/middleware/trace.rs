//! Request ids, spans, the access log and request metrics.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use hob_trace::{Span, SpanKind, TraceContext, Tracer, attribute};
use tracing::Instrument;

use crate::server::listener::Peer;
use crate::server::middleware::Sender;

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
const MAX_ID_BYTES: usize = 64;

/// The id of a request, in the log and in the response.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(Arc<str>);

impl RequestId {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The id that the client sent, if it is safe to log, otherwise a new one.
    fn of(request: &Request) -> Self {
        let is_safe = |text: &&str| {
            (1..=MAX_ID_BYTES).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        let given = request.headers().get(&HEADER).and_then(|value| value.to_str().ok()).filter(is_safe);
        given.map_or_else(|| Self(format!("{:016x}", rand::random::<u64>()).into()), |text| Self(text.into()))
    }
}

/// The method as a label. Unknown methods share one label, because clients can send any method.
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

/// Longer parts of an unknown path are not logged.
const MAX_UNKNOWN_PART_BYTES: usize = 20;

/// The path without secrets. A parameter `{token}` of a route is a secret. A path that does not match a route may be
/// the URL of such a route with a typo, so its long parts are not logged either.
fn without_secrets(path: &str, route: Option<&str>) -> String {
    let mut names = route.unwrap_or_default().split('/');
    let shown = |part| {
        let name = names.next();
        let is_hidden = match route {
            Some(_) => name == Some("{token}"),
            None => str::len(part) > MAX_UNKNOWN_PART_BYTES,
        };
        if is_hidden { "…" } else { part }
    };
    path.split('/').map(shown).collect::<Vec<_>>().join("/")
}

/// Gives the request an id and a span, and logs one line for the response. Headers, the query and tokens in the path
/// are not logged, because they are secrets or may contain secrets.
pub(crate) async fn trace(State(tracer): State<Tracer>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = RequestId::of(&request);
    request.extensions_mut().insert(id.clone());
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let path = without_secrets(request.uri().path(), route);
    let route = route.unwrap_or_default().to_owned();
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0.ip());
    let mut span = server_span(&tracer, &request, &route, &path);
    let log_span = tracing::info_span!("request", id = id.as_str());
    let mut response = span.scope(next.run(request).instrument(log_span)).await;
    let status = response.status();
    span.describe(|record| record.set_response(status.as_u16()));
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

/// The span of an API request. Pages, assets and probes of health have none.
fn server_span(tracer: &Tracer, request: &Request, route: &str, path: &str) -> Span {
    if !route.starts_with("/api/") {
        return Span::none();
    }
    let mut span = tracer.span(SpanKind::Server, TraceContext::of(request.headers()));
    span.describe(|record| {
        let sender = request.extensions().get::<Sender>();
        let is_https = sender.is_some_and(|sender| sender.is_https);
        record.set_request(request, if is_https { "https" } else { "http" }, path);
        record.set_route(request.method(), route);
        if let Some(sender) = sender {
            record.set(attribute::CLIENT_ADDRESS, sender.address.to_string());
        }
    });
    span
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_paths_are_hidden() {
        const TOKEN: &str = "0123456789abcdef0123456789abcdef01234567";
        for (path, route, shown) in [
            ("/heartbeat/TOKEN", Some("/heartbeat/{token}"), "/heartbeat/…"),
            ("/heartbeat/TOKEN/start", Some("/heartbeat/{token}/start"), "/heartbeat/…/start"),
            ("/heartbeat/x", Some("/heartbeat/{token}"), "/heartbeat/…"),
            ("/heartbeat/TOKEN/strat", None, "/heartbeat/…/strat"),
            ("//heartbeat/TOKEN/", None, "//heartbeat/…/"),
            ("/garden/gnomes/TOKEN", Some("/garden/gnomes/{id}"), "/garden/gnomes/TOKEN"),
            ("/assets/hob.css", Some("/assets/{file}"), "/assets/hob.css"),
            ("/no/such/page", None, "/no/such/page"),
            ("/", Some("/"), "/"),
            ("*", None, "*"),
        ] {
            let given = path.replace("TOKEN", TOKEN);
            assert_eq!(without_secrets(&given, route), shown.replace("TOKEN", TOKEN));
        }
    }
}
