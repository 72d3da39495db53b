//! Quotas that any client can share: reserve before a call, commit or release after it.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use hob_web::{Access, Audited, Json, Path, Problem, Routes, Time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::pipeline::Pipelines;
use crate::quota::{
    Limits, MAX_QUOTA_WAIT, NewReservation, QuotaFeedback, QuotaName, QuotaUsage, ReserveDecision, millis,
};

pub(super) fn routes() -> Routes<Pipelines> {
    let (read, write) = (|| Access::read("pipelines"), || Access::write("pipelines"));
    Routes::new()
        .api(read(), routes!(list_quotas))
        .api(read(), routes!(get_quota))
        .write(write(), Audited::As("pipeline.quota.save"), routes!(put_quota))
        .write(write(), Audited::No, routes!(reserve))
        .write(write(), Audited::No, routes!(commit))
        .write(write(), Audited::No, routes!(release))
}

/// A quota and its usage.
#[derive(Serialize, ToSchema)]
#[schema(as = Quota)]
pub(crate) struct QuotaView {
    name: String,
    /// Rolling windows, such as `5/1m, 50/1h`.
    windows: String,
    /// Calls that stay unused in every window.
    buffer: u32,
    /// Calls in flight.
    in_flight: u32,
    /// The API refuses calls until this time.
    blocked_until: Option<Time>,
    usage: Vec<WindowView>,
}

/// Usage of a window.
#[derive(Serialize, ToSchema)]
#[schema(as = QuotaWindow)]
struct WindowView {
    limit: u32,
    /// The limit minus the buffer.
    usable: u32,
    seconds: u64,
    used: u32,
    left: u32,
    /// When one more call fits.
    fits_at: Time,
}

/// The limits of a quota.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct QuotaRequest {
    /// Rolling windows, such as `5000/1h` or `5/1m, 50/1h, 125/1d`.
    #[schema(max_length = 200, example = "5000/1h")]
    windows: String,
    /// Calls that stay unused in every window.
    #[serde(default)]
    #[schema(maximum = 100_000)]
    buffer: u32,
}

/// A reservation to make.
#[derive(Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = QuotaReserveRequest)]
struct ReserveRequest {
    /// Id of the reservation; random by default. A request with the same id returns the same reservation.
    #[schema(max_length = 64)]
    id: Option<String>,
    /// Number of calls; 1 by default.
    #[schema(minimum = 1, maximum = 100_000)]
    calls: Option<u32>,
    /// Name of the sharer; `api` by default. Runs and other sharers that wait for the quota share it by weight.
    #[schema(max_length = 250)]
    run: Option<String>,
    /// Weight of the sharer, 1 to 1000; 1 by default.
    #[schema(minimum = 1, maximum = 1000)]
    weight: Option<u32>,
    /// The calls end within this time; 60 by default.
    #[schema(minimum = 1, maximum = 3600)]
    hold_seconds: Option<u64>,
}

/// A reservation, or when to retry.
#[derive(Serialize, ToSchema)]
#[schema(as = QuotaReserveResponse)]
struct ReserveResponse {
    granted: bool,
    id: String,
    /// When a reservation that is not committed counts as ended.
    until: Option<Time>,
    /// The earliest time at which the calls may fit.
    at: Option<Time>,
    /// When to ask again, at most 2 seconds: a caller that stays away longer loses its place among the sharers.
    wait_ms: Option<u64>,
}

/// The result of a reservation.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = QuotaCommitRequest)]
struct CommitRequest {
    #[schema(max_length = 64)]
    id: String,
    /// Number of calls made; all by default. The others are released.
    #[schema(maximum = 100_000)]
    made: Option<u32>,
    /// The `Retry-After` of a 429 or 503 response.
    #[schema(maximum = 9_223_372_036_854_775_807i64)]
    retry_after_seconds: Option<u64>,
}

/// A reservation to release.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = QuotaReleaseRequest)]
struct ReleaseRequest {
    #[schema(max_length = 64)]
    id: String,
}

/// List all quotas with their usage.
#[utoipa::path(get, path = "/api/v1/quota", responses((status = 200, body = Vec<QuotaView>)))]
async fn list_quotas(State(pipelines): State<Pipelines>) -> Result<Json<Vec<QuotaView>>, Problem> {
    let mut views = Vec::new();
    for definition in pipelines.quotas().all().await? {
        views.push(pipelines.quotas().usage(&definition.name).await?.into());
    }
    Ok(Json(views))
}

/// Get a quota and its usage.
#[utoipa::path(get, path = "/api/v1/quota/{name}", params(("name" = String, Path, max_length = 64)),
    responses((status = 200, body = QuotaView)))]
async fn get_quota(
    State(pipelines): State<Pipelines>,
    Path(name): Path<String>,
) -> Result<Json<QuotaView>, Problem> {
    Ok(Json(pipelines.quotas().usage(&quota_name(&name)?).await?.into()))
}

/// Create a quota, or change its limits.
#[utoipa::path(put, path = "/api/v1/quota/{name}", params(("name" = String, Path, max_length = 64)),
    request_body = QuotaRequest, responses((status = 200, body = QuotaView)))]
async fn put_quota(
    State(pipelines): State<Pipelines>,
    Path(name): Path<String>,
    Json(request): Json<QuotaRequest>,
) -> Result<Json<QuotaView>, Problem> {
    let name: QuotaName = name.parse().map_err(Problem::from)?;
    let limits = Limits::parse(&request.windows, request.buffer)?;
    pipelines.quotas().define(&name, &limits).await?;
    Ok(Json(pipelines.quotas().usage(&name).await?.into()))
}

/// Reserve calls. A granted reservation is in the call log.
#[utoipa::path(post, path = "/api/v1/quota/{name}/reserve", params(("name" = String, Path, max_length = 64)),
    request_body = Option<ReserveRequest>, responses((status = 200, body = ReserveResponse)))]
async fn reserve(
    State(pipelines): State<Pipelines>,
    Path(name): Path<String>,
    request: Option<Json<ReserveRequest>>,
) -> Result<Json<ReserveResponse>, Problem> {
    let Json(request) = request.unwrap_or_default();
    let new = NewReservation {
        id: request.id.unwrap_or_else(NewReservation::random_id),
        calls: request.calls.unwrap_or(1),
        run: request.run.unwrap_or_else(|| "api".to_owned()),
        weight: request.weight.unwrap_or(1),
        hold: Duration::from_secs(request.hold_seconds.unwrap_or(60)),
    };
    let answer = pipelines.quotas().reserve(&quota_name(&name)?, &new).await?;
    pipelines.notify_pages();
    let id = new.id;
    Ok(Json(match answer {
        ReserveDecision::Granted(reservation) => {
            let until = Some(Time(reservation.until));
            ReserveResponse { granted: true, id, until, at: None, wait_ms: None }
        }
        ReserveDecision::Wait { at, after } => {
            let wait_ms = Some(millis(after.min(MAX_QUOTA_WAIT)));
            ReserveResponse { granted: false, id, until: None, at: Some(Time(at)), wait_ms }
        }
    }))
}

/// Settle a reservation after its calls were made.
#[utoipa::path(post, path = "/api/v1/quota/{name}/commit", params(("name" = String, Path, max_length = 64)),
    request_body = CommitRequest, responses((status = 204)))]
async fn commit(
    State(pipelines): State<Pipelines>,
    Path(name): Path<String>,
    Json(request): Json<CommitRequest>,
) -> Result<StatusCode, Problem> {
    let blocked_for = request.retry_after_seconds.map(|seconds| Duration::from_secs(seconds.min(7 * 86_400)));
    let feedback = QuotaFeedback { blocked_for, counted: None };
    settle(&pipelines, &name, &request.id, request.made.unwrap_or(u32::MAX), feedback).await
}

/// Release a reservation whose calls were not made.
#[utoipa::path(post, path = "/api/v1/quota/{name}/release", params(("name" = String, Path, max_length = 64)),
    request_body = ReleaseRequest, responses((status = 204)))]
async fn release(
    State(pipelines): State<Pipelines>,
    Path(name): Path<String>,
    Json(request): Json<ReleaseRequest>,
) -> Result<StatusCode, Problem> {
    settle(&pipelines, &name, &request.id, 0, QuotaFeedback::default()).await
}

async fn settle(
    pipelines: &Pipelines,
    name: &str,
    id: &str,
    made: u32,
    feedback: QuotaFeedback,
) -> Result<StatusCode, Problem> {
    let reservation = pipelines.quotas().reservation(&quota_name(name)?, id).await?;
    pipelines.quotas().settle(&reservation, made, feedback).await?;
    pipelines.notify_pages();
    Ok(StatusCode::NO_CONTENT)
}

/// An invalid name is not found.
fn quota_name(name: &str) -> Result<QuotaName, Problem> {
    name.parse().map_err(|_| Problem::not_found("quota"))
}

impl From<QuotaUsage> for QuotaView {
    fn from(quota: QuotaUsage) -> Self {
        let usage = quota.windows.iter().map(|window| WindowView {
            limit: window.limit,
            usable: window.usable,
            seconds: window.period.as_secs(),
            used: window.used,
            left: window.left(),
            fits_at: Time(window.fits_at),
        });
        Self {
            name: quota.definition.name.to_string(),
            windows: quota.definition.limits.to_string(),
            buffer: quota.definition.limits.buffer(),
            in_flight: quota.in_flight,
            blocked_until: quota.blocked_until.map(Time),
            usage: usage.collect(),
        }
    }
}
