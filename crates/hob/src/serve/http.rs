//! `/healthz`, `/readyz` and `/metrics`, and the addresses that are printed at the start.

use std::fmt;
use std::io::Write as _;
use std::net::SocketAddr;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hob_database::UnixMs;
use hob_engine::Engine;
use hob_service::ServiceContext;
use hob_store::{Degradation, Fault};
use hob_web::{Access, Routes, Time};
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::serve::backends::Backends;
use crate::services::Services;

/// The addresses of this process.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    pub(crate) listen: SocketAddr,
    pub(crate) scheme: &'static str,
    pub(crate) embedded: Option<SocketAddr>,
    pub(crate) store: String,
    pub(crate) database: String,
    /// The listeners of services, by name.
    pub(crate) services: Vec<(&'static str, String)>,
}

/// The state of these routes.
#[derive(Clone)]
pub(crate) struct StatusState {
    pub(crate) context: ServiceContext,
    pub(crate) engine: Option<Engine>,
    pub(crate) stopping: CancellationToken,
    pub(crate) metrics: PrometheusHandle,
    pub(crate) services: Services,
}

pub(crate) fn routes(status: StatusState) -> Routes {
    Routes::new()
        .page(Access::Public, "/healthz", async || "ok\n")
        .page(Access::Public, "/readyz", readyz)
        .page(Access::read("metrics"), "/metrics", metrics_page)
        .with_state(status)
}

impl Endpoints {
    pub(crate) fn new(
        config: &Config,
        backends: &Backends,
        services: Vec<(&'static str, String)>,
    ) -> Endpoints {
        let address = config.redis.address().map(|address| address.to_string());
        Endpoints {
            listen: config.server.listen,
            scheme: if config.server.tls_certificate.is_some() { "https" } else { "http" },
            embedded: backends.embedded.as_ref().and_then(|embedded| embedded.listener.address()),
            store: address.unwrap_or_default(),
            database: backends.context.database.address().to_string(),
            services,
        }
    }

    /// Prints the addresses. Errors are ignored: standard output may be closed.
    pub(crate) fn announce(&self) {
        let _ = std::io::stdout().write_all(self.to_string().as_bytes());
    }
}

impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoints { listen, scheme, .. } = self;
        writeln!(f, "Hob is on {scheme}://{listen}")?;
        for (name, url) in &self.services {
            writeln!(f, "  {name:10}  {url}")?;
        }
        writeln!(f, "  redis       {}", self.store)?;
        writeln!(f, "  database    {}", self.database)?;
        if let Some(embedded) = self.embedded {
            writeln!(f, "  redis-cli   redis-cli -p {}", embedded.port())?;
        }
        writeln!(f, "  health      {scheme}://{listen}/readyz")?;
        writeln!(f, "  metrics     {scheme}://{listen}/metrics")
    }
}

async fn readyz(State(status): State<StatusState>) -> Response {
    let ready = status.ready().await;
    let body = Json(json!({
        "status": ready.status(),
        "ready": ready.all(),
        "stopping": ready.stopping,
        "redis": ready.store,
        "database": ready.database,
        "degraded": ready.degraded,
    }));
    if ready.all() {
        body.into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], body).into_response()
    }
}

async fn metrics_page(State(status): State<StatusState>) -> Response {
    if let Some(engine) = &status.engine {
        metrics::gauge!("hob_engine_memory_bytes").set(engine.memory() as f64);
        metrics::gauge!("hob_engine_keys").set(engine.len() as f64);
    }
    metrics::counter!("hob_log_dropped_lines_total").absolute(crate::serve::log::dropped_lines());
    let text = super::metrics::render(&status.metrics, &status.services).await;
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

impl StatusState {
    async fn ready(&self) -> Ready {
        let (store, database) = tokio::join!(self.context.store.ping(), self.context.database.ping());
        Ready {
            store: store.is_ok(),
            database: database.is_ok(),
            stopping: self.stopping.is_cancelled(),
            degraded: self.context.store.health().degraded.into_iter().map(DegradedSystem::from).collect(),
        }
    }
}

/// The readiness of the process.
#[derive(Clone, Debug)]
struct Ready {
    store: bool,
    database: bool,
    stopping: bool,
    degraded: Vec<DegradedSystem>,
}

/// A system whose calls the store refuses. The route is public: the text of the error is in the log only.
#[derive(Clone, Debug, Serialize)]
struct DegradedSystem {
    system: &'static str,
    fault: Fault,
    reason: &'static str,
    since: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ready,
    /// It serves, but some systems cannot write to the store.
    Degraded,
    Unavailable,
    Stopping,
}

impl Ready {
    fn all(&self) -> bool {
        matches!(self.status(), Status::Ready | Status::Degraded)
    }

    fn status(&self) -> Status {
        match self {
            Self { stopping: true, .. } => Status::Stopping,
            Self { store: false, .. } | Self { database: false, .. } => Status::Unavailable,
            Self { degraded, .. } if !degraded.is_empty() => Status::Degraded,
            _ => Status::Ready,
        }
    }
}

impl From<Degradation> for DegradedSystem {
    fn from(Degradation { system, fault, since_unix_ms }: Degradation) -> Self {
        let since = Time(UnixMs(i64::try_from(since_unix_ms).unwrap_or(i64::MAX)));
        Self { system, fault, reason: fault.reason(), since }
    }
}
