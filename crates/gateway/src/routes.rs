//! The API: rate limit checks for services in any language, and statistics.

use std::sync::Arc;

use axum::extract::State;
use hob_admission::{ActiveRule, Identity, RateLimitHeaders, RuleMode, Verdict};
use hob_store::limit::Decision;
use hob_web::{Access, Audited, Json, Problem, Query, Routes};
use http::HeaderValue;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use crate::Error;
use crate::gateway::Gateway;
use crate::keys::Endpoint;
use crate::traffic::histogram::{Histogram, percentile};
use crate::traffic::statistics::merge_minutes;

const READ: Access = Access::read("gateway");
const WRITE: Access = Access::write("gateway");

const MAX_CHECKS: usize = 100;
/// Latency is kept for a day.
const MAX_MINUTES: u64 = 24 * 60;
/// Traffic by hour is kept for a month.
const MAX_DAYS: u64 = 31;
const DAY_MS: u64 = 86_400_000;

pub(crate) fn routes() -> Routes<Gateway> {
    Routes::new()
        .write(WRITE, Audited::No, routes!(check))
        .write(WRITE, Audited::No, routes!(check_batch))
        .api(READ, routes!(summary))
        .api(READ, routes!(endpoints))
        .api(READ, routes!(errors))
        .api(READ, routes!(instances))
        .api(READ, routes!(hourly))
        .api(READ, routes!(history))
        .api(READ, routes!(latency))
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(error) => error.into(),
            Error::Database(error) => error.into(),
            error => Self::internal(error),
        }
    }
}

/// A check of a caller against a rule.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LimitCheck {
    /// The rule's name.
    #[schema(example = "api", max_length = 64)]
    rule: String,
    /// The caller.
    #[schema(example = "user:123", min_length = 1, max_length = 256)]
    key: String,
    /// The cost; by default the rule's. 0 reads the quota without counting.
    #[schema(minimum = 0, maximum = 4_294_967_295i64)]
    cost: Option<u32>,
}

/// The decision about a check.
#[derive(Debug, Serialize, ToSchema)]
struct LimitDecision {
    allowed: bool,
    /// Only for a shadow rule: whether it would have allowed the request. `allowed` is always true then.
    #[serde(skip_serializing_if = "Option::is_none")]
    shadow: Option<bool>,
    limit: Option<u32>,
    remaining: Option<u32>,
    /// Time until the whole limit is available again, if there are no further requests.
    reset_after_ms: Option<u64>,
    /// Time until the same check would be allowed, if there are no further requests.
    retry_after_ms: Option<u64>,
    /// Headers to add to the response.
    headers: LimitHeaders,
}

#[derive(Debug, Serialize, ToSchema)]
struct LimitHeaders {
    #[serde(rename = "RateLimit", skip_serializing_if = "String::is_empty")]
    limit: String,
    #[serde(rename = "RateLimit-Policy")]
    policy: String,
    #[serde(rename = "Retry-After", skip_serializing_if = "Option::is_none")]
    retry_after: Option<String>,
}

/// Check a caller against a rule, and count the request if it is allowed.
#[utoipa::path(post, path = "/api/v1/limits/check", tag = "gateway", request_body = LimitCheck,
    responses((status = 200, body = LimitDecision)))]
async fn check(
    State(gateway): State<Gateway>,
    Json(check): Json<LimitCheck>,
) -> Result<Json<LimitDecision>, Problem> {
    Ok(Json(decide(&gateway, &resolve(&gateway, &check, "")?).await))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LimitChecks {
    /// 1 to 100 checks.
    #[schema(max_items = 100)]
    checks: Vec<LimitCheck>,
}

/// The decisions, in the order of the checks.
#[derive(Debug, Serialize, ToSchema)]
struct LimitDecisions {
    results: Vec<LimitDecision>,
}

/// Check several callers at once. Each check is decided independently.
#[utoipa::path(post, path = "/api/v1/limits/check/batch", tag = "gateway", request_body = LimitChecks,
    responses((status = 200, body = LimitDecisions)))]
async fn check_batch(
    State(gateway): State<Gateway>,
    Json(LimitChecks { checks }): Json<LimitChecks>,
) -> Result<Json<LimitDecisions>, Problem> {
    if checks.is_empty() || checks.len() > MAX_CHECKS {
        return Err(Problem::invalid(
            "checks",
            format!("must contain 1 to {MAX_CHECKS} checks, not {}", checks.len()),
        ));
    }
    // All checks are validated before the first one counts.
    let resolved = checks
        .iter()
        .enumerate()
        .map(|(index, check)| resolve(&gateway, check, &format!("checks[{index}].")));
    let resolved = resolved.collect::<Result<Vec<_>, _>>()?;
    let results =
        futures_util::future::join_all(resolved.iter().map(|resolved| decide(&gateway, resolved))).await;
    Ok(Json(LimitDecisions { results }))
}

/// A valid check.
struct ResolvedCheck {
    rule: Arc<ActiveRule>,
    identity: Identity,
    cost: u32,
}

fn resolve(gateway: &Gateway, check: &LimitCheck, at: &str) -> Result<ResolvedCheck, Problem> {
    let Some(rule) = gateway.admission().limiter().rule(&check.rule) else {
        return Err(Problem::invalid(format!("{at}rule"), "There is no such rule."));
    };
    let Some(identity) = Identity::new(&check.key) else {
        return Err(Problem::invalid(format!("{at}key"), "A key must have 1 to 256 bytes."));
    };
    let config = rule.rule();
    let (cost, max_cost) = (check.cost.unwrap_or(config.cost()), config.max_cost());
    if cost > max_cost {
        return Err(Problem::invalid(format!("{at}cost"), format!("The cost must be at most {max_cost}.")));
    }
    Ok(ResolvedCheck { rule, identity, cost })
}

async fn decide(gateway: &Gateway, ResolvedCheck { rule, identity, cost }: &ResolvedCheck) -> LimitDecision {
    let config = rule.rule();
    let verdict = gateway.admission().limiter().check(rule, identity, *cost).await;
    let limit_headers = RateLimitHeaders::new(config, &verdict);
    let retry_after = match &verdict {
        Verdict::Decided(Decision::Denied { retry_after, .. }) | Verdict::Unavailable { retry_after } => {
            Some(retry_after.as_millis() as u64)
        }
        _ => None,
    };
    let (allowed_by_rule, shadow) = (verdict.is_allowed(), config.mode() == RuleMode::Shadow);
    LimitDecision {
        allowed: allowed_by_rule || shadow,
        shadow: shadow.then_some(allowed_by_rule),
        limit: limit_headers.quota.map(|quota| quota.limit),
        remaining: limit_headers.quota.map(|quota| quota.remaining),
        reset_after_ms: limit_headers.quota.map(|quota| quota.reset_after.as_millis() as u64),
        retry_after_ms: retry_after,
        headers: LimitHeaders {
            limit: limit_headers.limit.as_ref().map_or_else(String::new, text),
            policy: text(&limit_headers.policy),
            retry_after: limit_headers.retry_after_s.map(|seconds| seconds.to_string()),
        },
    }
}

fn text(value: &HeaderValue) -> String {
    value.to_str().unwrap_or_default().to_owned()
}

/// Totals and gauges over all instances.
#[derive(Debug, Serialize, ToSchema)]
struct GatewaySummary {
    connections: u64,
    connections_max: u64,
    accepted: u64,
    total: u64,
    /// Refused by the gateway itself.
    limited: u64,
    /// Responses with a status of 400 or more, including refusals.
    errors: u64,
    /// Errors with a status of 500 or more, without refusals.
    server_errors: u64,
    /// Errors with a status below 500, without refusals.
    client_errors: u64,
    requests_per_second: u64,
    requests_per_second_max: u64,
}

/// Get the totals and gauges over all instances.
#[utoipa::path(get, path = "/api/v1/gateway/summary", tag = "gateway", responses((status = 200, body = GatewaySummary)))]
async fn summary(State(gateway): State<Gateway>) -> Result<Json<GatewaySummary>, Problem> {
    let statistics = gateway.statistics().summary().await?;
    Ok(Json(GatewaySummary {
        connections: statistics.connections,
        connections_max: statistics.connections_max,
        accepted: statistics.accepted,
        total: statistics.total,
        limited: statistics.limited,
        errors: statistics.errors,
        server_errors: statistics.server_errors,
        client_errors: statistics.client_errors(),
        requests_per_second: statistics.per_second,
        requests_per_second_max: statistics.per_second_max,
    }))
}

#[derive(Debug, Serialize, ToSchema)]
struct GatewayEndpoint {
    #[schema(example = "GET /api/users")]
    endpoint: String,
    requests: u64,
    /// Responses with a status of 400 or more, including refusals.
    errors: u64,
    /// Refused by the gateway itself.
    limited: u64,
    /// Errors with a status of 500 or more, without refusals.
    server_errors: u64,
    /// Errors with a status below 500, without refusals.
    client_errors: u64,
    average_ms: Option<f64>,
}

/// List all endpoints, the busiest first; at most 1,001.
#[utoipa::path(get, path = "/api/v1/gateway/endpoints", tag = "gateway", responses((status = 200, body = Vec<GatewayEndpoint>)))]
async fn endpoints(State(gateway): State<Gateway>) -> Result<Json<Vec<GatewayEndpoint>>, Problem> {
    let counts = |statistics: crate::EndpointStatistics| GatewayEndpoint {
        average_ms: statistics.average_ms(),
        client_errors: statistics.client_errors(),
        limited: statistics.limited,
        server_errors: statistics.server_errors,
        endpoint: statistics.name,
        requests: statistics.requests,
        errors: statistics.errors,
    };
    Ok(Json(gateway.statistics().endpoints().await?.into_iter().map(counts).collect()))
}

#[derive(Debug, Serialize, ToSchema)]
struct GatewayErrors {
    total: u64,
    /// Refused by the gateway itself; other 429s come from the upstream.
    limited: u64,
    /// With a status of 500 or more, without refusals.
    server: u64,
    /// With a status below 500, without refusals.
    client: u64,
    by_status: Vec<GatewayStatus>,
}

#[derive(Debug, Serialize, ToSchema)]
struct GatewayStatus {
    #[schema(example = 404)]
    status: u16,
    count: u64,
}

/// Get the number of errors by status.
#[utoipa::path(get, path = "/api/v1/gateway/errors", tag = "gateway", responses((status = 200, body = GatewayErrors)))]
async fn errors(State(gateway): State<Gateway>) -> Result<Json<GatewayErrors>, Problem> {
    let statistics = gateway.statistics();
    let (summary, statuses) = tokio::try_join!(statistics.summary(), statistics.statuses())?;
    let by_status = statuses.into_iter().map(|(status, count)| GatewayStatus { status, count }).collect();
    Ok(Json(GatewayErrors {
        total: summary.errors,
        limited: summary.limited,
        server: summary.server_errors,
        client: summary.client_errors(),
        by_status,
    }))
}

#[derive(Debug, Serialize, ToSchema)]
struct GatewayInstance {
    id: String,
    connections: u64,
    requests: u64,
    started_unix_ms: u64,
}

/// List the live instances.
#[utoipa::path(get, path = "/api/v1/gateway/instances", tag = "gateway", responses((status = 200, body = Vec<GatewayInstance>)))]
async fn instances(State(gateway): State<Gateway>) -> Result<Json<Vec<GatewayInstance>>, Problem> {
    let instance = |statistics: crate::InstanceStatistics| GatewayInstance {
        id: statistics.id,
        connections: statistics.connections,
        requests: statistics.requests,
        started_unix_ms: statistics.started_unix_ms,
    };
    Ok(Json(gateway.statistics().instances().await?.into_iter().map(instance).collect()))
}

#[derive(Debug, Serialize, ToSchema)]
struct GatewayHour {
    start_unix_ms: u64,
    requests: u64,
}

/// Get the requests per hour for the last 24 hours, the oldest first.
#[utoipa::path(get, path = "/api/v1/gateway/hourly", tag = "gateway", responses((status = 200, body = Vec<GatewayHour>)))]
async fn hourly(State(gateway): State<Gateway>) -> Result<Json<Vec<GatewayHour>>, Problem> {
    let hour = |statistics: crate::HourCount| GatewayHour {
        start_unix_ms: statistics.start_unix_ms,
        requests: statistics.requests,
    };
    Ok(Json(gateway.statistics().hours().await?.into_iter().map(hour).collect()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    /// How many days back, 1 to 31; by default 30.
    #[param(minimum = 1, maximum = 31)]
    days: Option<u64>,
}

/// The traffic of an hour, as far as it is saved in the database.
#[derive(Debug, Serialize, ToSchema)]
struct GatewayTraffic {
    start_unix_ms: u64,
    requests: u64,
    limited: u64,
    client_errors: u64,
    server_errors: u64,
    /// The average response time; refused requests have none.
    average_ms: Option<f64>,
}

/// Get the traffic per hour for up to 31 days, the oldest first. Hours without traffic are left out.
#[utoipa::path(get, path = "/api/v1/gateway/history", tag = "gateway", params(HistoryQuery), responses((status = 200, body = Vec<GatewayTraffic>)))]
async fn history(
    State(gateway): State<Gateway>,
    Query(query): Query<HistoryQuery>,
) -> Result<Json<Vec<GatewayTraffic>>, Problem> {
    let days = query.days.unwrap_or(30);
    if !(1..=MAX_DAYS).contains(&days) {
        return Err(Problem::invalid("days", format!("must be 1 to {MAX_DAYS}, not {days}")));
    }
    let now = hob_units::unix_ms();
    let hour = |traffic: crate::HourTraffic| GatewayTraffic {
        start_unix_ms: traffic.start_unix_ms,
        requests: traffic.requests,
        limited: traffic.limited,
        client_errors: traffic.client_errors(),
        server_errors: traffic.server_errors,
        average_ms: traffic.average_ms(),
    };
    let history = gateway.statistics().history(now - days * DAY_MS..now).await?;
    Ok(Json(history.into_iter().map(hour).collect()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct LatencyQuery {
    /// One endpoint, such as `GET /api/users`; by default all together.
    #[param(max_length = 300)]
    endpoint: Option<String>,
    /// How many minutes back, 1 to 1440; by default 60.
    #[param(minimum = 1, maximum = 1440)]
    minutes: Option<u64>,
}

/// Response times in milliseconds, accurate to 1 %.
#[derive(Debug, Serialize, ToSchema)]
struct GatewayPercentiles {
    count: u64,
    p50: Option<f64>,
    p90: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    p999: Option<f64>,
}

#[derive(Debug, Serialize, ToSchema)]
struct GatewayLatency {
    /// Over the whole range.
    overall: GatewayPercentiles,
    /// Per minute, the oldest first; minutes without requests are omitted.
    minutes: Vec<GatewayMinute>,
}

#[derive(Debug, Serialize, ToSchema)]
struct GatewayMinute {
    start_unix_ms: u64,
    #[serde(flatten)]
    percentiles: GatewayPercentiles,
}

/// Get the percentiles of response times over all instances.
#[utoipa::path(get, path = "/api/v1/gateway/latency", tag = "gateway", params(LatencyQuery), responses((status = 200, body = GatewayLatency)))]
async fn latency(
    State(gateway): State<Gateway>,
    Query(query): Query<LatencyQuery>,
) -> Result<Json<GatewayLatency>, Problem> {
    let minutes = query.minutes.unwrap_or(60);
    if !(1..=MAX_MINUTES).contains(&minutes) {
        return Err(Problem::invalid("minutes", format!("must be 1 to {MAX_MINUTES}, not {minutes}")));
    }
    let endpoint = match query.endpoint.map(Endpoint::new).transpose() {
        Ok(endpoint) => endpoint,
        Err(bad) => return Err(Problem::invalid("endpoint", bad.to_string())),
    };
    let statistics = gateway.statistics().latency(endpoint.as_ref(), minutes).await?;
    let overall = GatewayPercentiles::of(&merge_minutes(&statistics));
    let minute = |minute: &crate::MinuteLatency| GatewayMinute {
        start_unix_ms: minute.start_unix_ms,
        percentiles: GatewayPercentiles::of(&minute.histogram),
    };
    let minutes = statistics.iter().filter(|minute| minute.histogram.count() > 0).map(minute).collect();
    Ok(Json(GatewayLatency { overall, minutes }))
}

impl GatewayPercentiles {
    fn of(histogram: &Histogram) -> Self {
        let at = |percent| percentile(histogram, percent).map(|time| time.as_secs_f64() * 1000.0);
        Self {
            count: histogram.count(),
            p50: at(50.0),
            p90: at(90.0),
            p95: at(95.0),
            p99: at(99.0),
            p999: at(99.9),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    /// An unavailable store or database is a 503, not a fault of the gateway.
    #[test]
    fn unavailable_store_or_database_is_a_503() {
        let refused = |code: &str| {
            Error::Store(hob_store::Error::Refused { code: code.to_owned(), detail: String::new() })
        };
        let away = hob_database::Error::Unavailable { source: None };
        let lost = hob_store::Error::Interrupted { reason: "gone".to_owned() };
        for error in [refused("LOADING"), refused("CLUSTERDOWN"), Error::Database(away), Error::Store(lost)] {
            let message = error.to_string();
            assert_eq!(Problem::from(error).status(), StatusCode::SERVICE_UNAVAILABLE, "{message}");
        }
        assert_eq!(Problem::from(refused("WRONGTYPE")).status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
