//! Prometheus metrics.

use hob_service::{Metric, Samples};
use hob_units::format_duration;
use metrics::{counter, gauge};

use crate::database::runs;
use crate::error::Result;
use crate::pipeline::Pipelines;
use crate::quota::{QuotaName, QuotaUsage};

const DRIVEN: &str = "hob_pipeline_runs_driven";
const CALLS: &str = "hob_pipeline_calls_total";
const ITEMS: &str = "hob_pipeline_items_total";
const FOREIGN: &str = "hob_pipeline_foreign_calls_total";
const REBUILDS: &str = "hob_pipeline_quota_rebuilds_total";
const QUOTA_USED: Metric =
    Metric::gauge("hob_pipeline_quota_used", "Calls that count in a window of a quota now, on all nodes.")
        .by(&["quota", "window"]);
const QUOTA_LIMIT: Metric = Metric::gauge(
    "hob_pipeline_quota_limit",
    "Calls that a window of a quota allows, without those that stay unused.",
)
.by(&["quota", "window"]);
const QUOTA_IN_FLIGHT: Metric =
    Metric::gauge("hob_pipeline_quota_in_flight", "Calls of a quota in flight, on all nodes.").by(&["quota"]);
const QUOTA_BLOCKED: Metric =
    Metric::gauge("hob_pipeline_quota_blocked", "1 while the API of a quota refuses calls, otherwise 0.")
        .by(&["quota"]);
const RUN_CALLS: Metric =
    Metric::gauge("hob_pipeline_run_remaining_calls", "Calls that a running run is expected to need.")
        .by(&["run"]);
const RUN_SECONDS: Metric = Metric::gauge(
    "hob_pipeline_run_remaining_seconds",
    "Expected time until a running run is done; none until it can be estimated.",
)
.by(&["run"]);

/// Quotas and running runs with metrics.
const MAX_QUOTAS: usize = 100;
const MAX_RUNS: usize = 50;

pub(crate) const METRICS: &[Metric] = &[
    Metric::gauge(DRIVEN, "Runs that this node executes."),
    Metric::counter(CALLS, "Calls by quota and status; status 0 if there was no response.")
        .by(&["quota", "status"]),
    Metric::counter(ITEMS, "Attempts to process an item, by outcome.").by(&["outcome"]),
    Metric::counter(FOREIGN, "Calls that other clients made with a quota's credential.").by(&["quota"]),
    Metric::counter(REBUILDS, "Rebuilds of a quota from the call log."),
    QUOTA_USED,
    QUOTA_LIMIT,
    QUOTA_IN_FLIGHT,
    QUOTA_BLOCKED,
    RUN_CALLS,
    RUN_SECONDS,
];

pub(crate) fn runs_driven(runs: usize) {
    gauge!(DRIVEN).set(runs as f64);
}

/// Counts a call; `status` is 0 if there was no response.
pub(crate) fn called(quota: &QuotaName, status: u16) {
    counter!(CALLS, "quota" => quota.to_string(), "status" => status.to_string()).increment(1);
}

pub(crate) fn items(outcome: &'static str, count: usize) {
    counter!(ITEMS, "outcome" => outcome).increment(count as u64);
}

pub(crate) fn foreign(quota: &QuotaName, calls: u32) {
    counter!(FOREIGN, "quota" => quota.to_string()).increment(calls.into());
}

pub(crate) fn rebuilt() {
    counter!(REBUILDS).increment(1);
}

/// The usage of the quotas, and the forecasts of the running runs.
pub(crate) async fn current(pipelines: &Pipelines, samples: &mut Samples) -> Result<()> {
    let mut quotas = Vec::new();
    for definition in pipelines.quotas().all().await?.into_iter().take(MAX_QUOTAS) {
        quotas.push(pipelines.quotas().usage(&definition.name).await?);
    }
    let windows: Vec<(&QuotaUsage, String, f64, f64)> = quotas
        .iter()
        .flat_map(|quota| {
            quota.windows.iter().map(move |window| {
                (quota, format_duration(window.period), f64::from(window.used), f64::from(window.usable))
            })
        })
        .collect();
    samples.gauge(
        &QUOTA_USED,
        windows.iter().map(|(quota, window, used, _)| ([("quota", name(quota)), ("window", window)], *used)),
    );
    samples.gauge(
        &QUOTA_LIMIT,
        windows
            .iter()
            .map(|(quota, window, _, limit)| ([("quota", name(quota)), ("window", window)], *limit)),
    );
    samples.gauge(
        &QUOTA_IN_FLIGHT,
        quotas.iter().map(|quota| ([("quota", name(quota))], f64::from(quota.in_flight))),
    );
    let blocked = |quota: &QuotaUsage| if quota.blocked_until.is_some() { 1.0 } else { 0.0 };
    samples.gauge(&QUOTA_BLOCKED, quotas.iter().map(|quota| ([("quota", name(quota))], blocked(quota))));
    forecasts(pipelines, samples).await
}

fn name(quota: &QuotaUsage) -> &str {
    quota.definition.name.as_str()
}

async fn forecasts(pipelines: &Pipelines, samples: &mut Samples) -> Result<()> {
    let mut forecasts = Vec::new();
    for run in runs::running(&pipelines.shared.context.database).await?.into_iter().take(MAX_RUNS) {
        let forecast = pipelines.forecast(&run).await?;
        forecasts.push((run, forecast));
    }
    samples.gauge(
        &RUN_CALLS,
        forecasts.iter().map(|(run, forecast)| ([("run", run.as_str())], forecast.calls.expected)),
    );
    let seconds = forecasts.iter().filter_map(|(run, forecast)| {
        let [_, expected, _] = forecast.duration?;
        Some(([("run", run.as_str())], expected.as_secs_f64()))
    });
    samples.gauge(&RUN_SECONDS, seconds);
    Ok(())
}
