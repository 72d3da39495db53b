//! An OpenTelemetry collector and an upstream, for tests of the traces between them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{any, post};
use hob_testkit::{LIMIT, wait_for};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::net::TcpListener;

/// Keeps what it receives.
#[derive(Clone, Default)]
pub(super) struct Collector {
    address: Option<SocketAddr>,
    spans: Arc<Mutex<Vec<ReceivedSpan>>>,
    headers: Arc<Mutex<HeaderMap>>,
    /// Requests that are answered 503 before one is accepted.
    failures: Arc<AtomicUsize>,
}

#[derive(Clone, Debug)]
pub(super) struct ReceivedSpan {
    pub(super) span: Span,
    attributes: BTreeMap<String, String>,
    resource: BTreeMap<String, String>,
}

impl Collector {
    pub(super) async fn start() -> Self {
        Self::start_failing(0).await
    }

    /// A collector that is not ready for its first requests.
    pub(super) async fn start_failing(failures: usize) -> Self {
        let mut collector = Self { failures: AtomicUsize::new(failures).into(), ..Self::default() };
        let routes = Router::new().route("/v1/traces", post(receive)).with_state(collector.clone());
        collector.address = Some(serve(routes).await);
        collector
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address.unwrap())
    }

    /// The headers of the last request.
    pub(super) fn headers(&self) -> HeaderMap {
        self.headers.lock().clone()
    }

    pub(super) fn spans(&self) -> Vec<ReceivedSpan> {
        self.spans.lock().clone()
    }

    pub(super) async fn wait_for(&self, what: &str, is: impl Fn(&ReceivedSpan) -> bool) -> ReceivedSpan {
        wait_for(what, LIMIT, async || self.spans().into_iter().find(|span| is(span))).await
    }
}

impl ReceivedSpan {
    pub(super) fn name(&self) -> &str {
        &self.span.name
    }

    /// The text of an attribute; empty if it is missing.
    pub(super) fn get(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }

    pub(super) fn resource(&self, key: &str) -> &str {
        self.resource.get(key).map_or("", String::as_str)
    }

    /// The ids as in `traceparent`.
    pub(super) fn ids(&self) -> (String, String) {
        (hex(&self.span.trace_id), hex(&self.span.span_id))
    }

    pub(super) fn parent(&self) -> String {
        hex(&self.span.parent_span_id)
    }
}

async fn receive(State(collector): State<Collector>, headers: HeaderMap, body: Bytes) -> StatusCode {
    if collector.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let request = ExportTraceServiceRequest::decode(body).expect("not an OTLP request");
    *collector.headers.lock() = headers;
    for resource_spans in request.resource_spans {
        let resource = texts(&resource_spans.resource.unwrap_or_default().attributes);
        for span in resource_spans.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            let (attributes, resource) = (texts(&span.attributes), resource.clone());
            assert!(span.end_time_unix_nano >= span.start_time_unix_nano, "{span:?}");
            collector.spans.lock().push(ReceivedSpan { span, attributes, resource });
        }
    }
    StatusCode::OK
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |pair: &KeyValue| {
        let value = match pair.value.as_ref()?.value.as_ref()? {
            Value::StringValue(text) => text.clone(),
            Value::IntValue(number) => number.to_string(),
            _ => return None,
        };
        Some((pair.key.clone(), value))
    };
    attributes.iter().filter_map(text).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Answers `/NUMBER` with this status, and keeps the headers of each request by its path.
#[derive(Clone, Default)]
pub(super) struct Upstream {
    address: Option<SocketAddr>,
    requests: Arc<Mutex<BTreeMap<String, HeaderMap>>>,
}

impl Upstream {
    pub(super) async fn start() -> Self {
        let mut upstream = Self::default();
        let routes = Router::new().route("/{status}/{name}", any(answer)).with_state(upstream.clone());
        upstream.address = Some(serve(routes).await);
        upstream
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address.unwrap())
    }

    /// A header of the last request with this name; empty if it was not sent.
    pub(super) fn header(&self, name: &str, header: &str) -> String {
        let requests = self.requests.lock();
        let headers = requests.get(name).unwrap_or_else(|| panic!("no request {name}"));
        let values: Vec<&str> = headers.get_all(header).iter().map(|value| value.to_str().unwrap()).collect();
        values.join(",")
    }
}

async fn answer(
    State(upstream): State<Upstream>,
    Path((status, name)): Path<(u16, String)>,
    headers: HeaderMap,
) -> StatusCode {
    upstream.requests.lock().insert(name, headers);
    StatusCode::from_u16(status).unwrap()
}

async fn serve(routes: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    address
}
