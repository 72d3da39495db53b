//! The health of the store connection, with the documented field names (P10, P11).

use axum::extract::State;
use hob_database::UnixMs;
use hob_store::{BusyMinute, Health};
use hob_web::{Access, Json, Routes, Time};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::pipeline::Pipelines;

pub(super) fn routes() -> Routes<Pipelines> {
    Routes::new().api(Access::read("pipelines"), routes!(get_health))
}

/// The health of this node's store connection. Quotas grant no calls while it is unhealthy.
#[derive(Serialize, ToSchema)]
#[schema(as = PipelineHealth)]
struct HealthView {
    /// Whether the store can be reached and accepts calls.
    is_connection_healthy: bool,
    connection_attempts: u64,
    connection_failures: u64,
    /// Share of connection attempts that succeeded; 1 if there were none.
    success_rate: f64,
    /// Failed connection attempts since the last success.
    consecutive_failures: u64,
    operations: OperationsView,
}

/// Store operations since this node started.
#[derive(Serialize, ToSchema)]
#[schema(as = PipelineHealthOperations)]
struct OperationsView {
    total: u64,
    /// Operations without a response, and those that the store refused because it is full, read-only or not ready.
    failed: u64,
    success_rate: f64,
    average_ms: f64,
    /// The busiest minute.
    peak: Option<PeakView>,
}

/// The busiest minute.
#[derive(Serialize, ToSchema)]
#[schema(as = PipelineHealthPeak)]
struct PeakView {
    since: Time,
    calls: u64,
}

/// Get the health of this node's connection to Redis.
#[utoipa::path(get, path = "/api/v1/pipelines/health", responses((status = 200, body = HealthView)))]
async fn get_health(State(pipelines): State<Pipelines>) -> Json<HealthView> {
    Json(pipelines.shared.context.store.health().into())
}

impl From<Health> for HealthView {
    fn from(health: Health) -> Self {
        let (connection, operations) = (&health.connection, &health.operations);
        Self {
            is_connection_healthy: health.is_healthy(),
            connection_attempts: connection.attempts,
            connection_failures: connection.failures,
            success_rate: connection.success_rate,
            consecutive_failures: connection.consecutive_failures,
            operations: OperationsView {
                total: operations.total,
                failed: operations.failed,
                success_rate: operations.success_rate(),
                average_ms: operations.mean_us() as f64 / 1e3,
                peak: operations.busiest.map(PeakView::from),
            },
        }
    }
}

impl From<BusyMinute> for PeakView {
    fn from(minute: BusyMinute) -> Self {
        let since = UnixMs(i64::try_from(minute.since_unix_ms).unwrap_or(i64::MAX));
        Self { since: Time(since), calls: minute.calls }
    }
}
