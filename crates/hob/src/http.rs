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
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::json;
use tokio::sync::watch;

/// Where the parts of this process can be reached.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) listen: SocketAddr,
    pub(crate) store: Option<SocketAddr>,
    pub(crate) hot: String,
    pub(crate) demo: bool,
}

#[derive(Clone)]
struct Shared {
    place: Place,
    hot: Hot,
    store: Option<Engine>,
    stopping: watch::Receiver<bool>,
    metrics: PrometheusHandle,
}

pub(crate) fn app(
    place: Place,
    hot: Hot,
    store: Option<Engine>,
    stopping: watch::Receiver<bool>,
    metrics: PrometheusHandle,
) -> Router {
    let shared = Shared { place, hot, store, stopping, metrics };
    Router::new()
        .route("/", get(index))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_page))
        .with_state(shared)
}

#[derive(Template)]
#[template(path = "index.html")]
struct Index {
    place: Place,
    version: &'static str,
    ready: bool,
    health: hob_hot::Health,
    store: Option<StoreFacts>,
}

struct StoreFacts {
    keys: usize,
    kib: usize,
}

async fn index(State(shared): State<Shared>) -> Result<Html<String>, StatusCode> {
    let ready = shared.is_ready().await;
    let facts = |engine: &Engine| StoreFacts { keys: engine.len(), kib: engine.memory() / 1024 };
    let page = Index {
        place: shared.place.clone(),
        version: env!("CARGO_PKG_VERSION"),
        ready,
        health: shared.hot.health(),
        store: shared.store.as_ref().map(facts),
    };
    page.render().map(Html).map_err(|error| {
        tracing::error!(%error, "could not render the first page");
        StatusCode::INTERNAL_SERVER_ERROR
    })
}

async fn readyz(State(shared): State<Shared>) -> Response {
    let stopping = *shared.stopping.borrow();
    let ready = shared.is_ready().await;
    let body = Json(json!({ "ready": ready, "stopping": stopping, "hot": shared.hot.health().is_healthy() }));
    if ready {
        body.into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], body).into_response()
    }
}

async fn metrics_page(State(shared): State<Shared>) -> Response {
    if let Some(engine) = &shared.store {
        metrics::gauge!("hob_store_memory_bytes").set(engine.memory() as f64);
        metrics::gauge!("hob_store_keys").set(engine.len() as f64);
    }
    let text = shared.metrics.render();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

impl Shared {
    async fn is_ready(&self) -> bool {
        !*self.stopping.borrow() && self.hot.ping().await.is_ok()
    }
}
