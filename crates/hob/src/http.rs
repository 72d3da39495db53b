//! The first faces: what is running and where, whether it is well, and its numbers.

use std::net::SocketAddr;

use askama::Template;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use hob_engine::Engine;
use hob_hot::Hot;
use hob_records::Records;
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::json;
use tokio::sync::watch;

/// Where the parts of this process can be reached.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) listen: SocketAddr,
    pub(crate) store: Option<SocketAddr>,
    pub(crate) hot: String,
    pub(crate) records: String,
    pub(crate) demo: bool,
}

/// What the faces look at.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) place: Place,
    pub(crate) hot: Hot,
    pub(crate) records: Records,
    pub(crate) store: Option<Engine>,
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) metrics: PrometheusHandle,
}

pub(crate) fn app(parts: Parts) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_page))
        .with_state(parts)
}

#[derive(Template)]
#[template(path = "index.html")]
struct Index {
    place: Place,
    version: &'static str,
    ready: Ready,
    health: hob_hot::Health,
    store: Option<StoreFacts>,
}

struct StoreFacts {
    keys: usize,
    kib: usize,
}

async fn index(State(parts): State<Parts>) -> Result<Html<String>, StatusCode> {
    let ready = parts.ready().await;
    let facts = |engine: &Engine| StoreFacts { keys: engine.len(), kib: engine.memory() / 1024 };
    let page = Index {
        place: parts.place.clone(),
        version: env!("CARGO_PKG_VERSION"),
        ready,
        health: parts.hot.health(),
        store: parts.store.as_ref().map(facts),
    };
    page.render().map(Html).map_err(|error| {
        tracing::error!(%error, "could not render the first page");
        StatusCode::INTERNAL_SERVER_ERROR
    })
}

async fn readyz(State(parts): State<Parts>) -> Response {
    let ready = parts.ready().await;
    let body = Json(json!({
        "ready": ready.all(),
        "stopping": ready.stopping,
        "hot": ready.hot,
        "records": ready.records,
    }));
    if ready.all() {
        body.into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], body).into_response()
    }
}

async fn metrics_page(State(parts): State<Parts>) -> Response {
    if let Some(engine) = &parts.store {
        metrics::gauge!("hob_store_memory_bytes").set(engine.memory() as f64);
        metrics::gauge!("hob_store_keys").set(engine.len() as f64);
    }
    let text = parts.metrics.render();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

impl Parts {
    async fn ready(&self) -> Ready {
        let (hot, records) = tokio::join!(self.hot.ping(), self.records.ping());
        Ready { hot: hot.is_ok(), records: records.is_ok(), stopping: *self.stopping.borrow() }
    }
}

/// What a request can count on right now.
#[derive(Clone, Copy, Debug)]
struct Ready {
    hot: bool,
    records: bool,
    stopping: bool,
}

impl Ready {
    fn all(self) -> bool {
        self.hot && self.records && !self.stopping
    }
}
