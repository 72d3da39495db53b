//! The recorder of metrics, and all metrics in one table, for `/metrics` and for `docs/metrics.md`.

use std::time::Duration;

use anyhow::{Context, Result};
use hob_service::{Buckets, Metric, MetricKind, Samples, Task, Tasks};
use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::services::{self, Services};

/// How often recorded durations are added to their buckets.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);
/// How long `/metrics` waits for the samples of a service: a Prometheus that gets no answer loses all other metrics too.
const SAMPLES_TIMEOUT: Duration = Duration::from_secs(3);

/// The metrics of the program. The services declare theirs.
const OWN: &[Metric] = &[
    Metric::histogram(
        "hob_http_request_seconds",
        Buckets::Coarse,
        "Duration of requests, by route, method and status.",
    )
    .by(&["route", "method", "status"]),
    Metric::counter(
        "hob_log_dropped_lines_total",
        "Log lines dropped because standard error was not read in time.",
    ),
    Metric::gauge(
        "hob_database_backup_timestamp_seconds",
        "When the last scheduled backup was made, as Unix time; only if backups are configured.",
    ),
    Metric::counter("hob_database_backup_failures_total", "Scheduled backups that failed."),
    Metric::counter("hob_trace_spans_exported_total", "Spans that the collector has accepted."),
    Metric::counter(
        "hob_trace_spans_dropped_total",
        "Spans that were lost, because the collector was away or too slow, or rejected them.",
    ),
    Metric::gauge(
        "hob_metrics_incomplete",
        "1 if gauges of a service are missing from this answer, because Redis or the database did not answer in time.",
    )
    .by(&["service"]),
    Metric::gauge("hob_engine_memory_bytes", "Memory of the embedded engine."),
    Metric::gauge("hob_engine_keys", "Keys in the embedded engine."),
    Metric::histogram(
        "hob_store_operation_seconds",
        Buckets::Coarse,
        "Duration of store operations, by kind.",
    )
    .by(&["kind"]),
    Metric::counter(
        "hob_store_operation_errors_total",
        "Store operations that failed, by kind: without an answer, or refused by a store that is full, read-only or not ready.",
    )
    .by(&["kind"]),
    Metric::gauge(
        "hob_store_degraded",
        "1 while the store refuses calls of a system, by system: gateway, uptime, chat, load, pipeline, hob.",
    )
    .by(&["system"]),
    Metric::counter(
        "hob_store_foreign_keys_total",
        "Keys that another client had changed to another type or to an unusable value, and that were replaced, by system.",
    )
    .by(&["system"]),
    Metric::counter("hob_store_connection_attempts_total", "Attempts to connect to the store."),
    Metric::counter("hob_store_connection_failures_total", "Attempts to connect to the store that failed."),
    Metric::gauge("hob_store_connections", "Configured connections to the store."),
    Metric::gauge("hob_store_connections_up", "Established connections to the store."),
];

fn all() -> impl Iterator<Item = &'static Metric> {
    OWN.iter().chain(services::ALL.iter().flat_map(|service| service.metrics))
}

/// Installs the recorder. To be called before the first metric is recorded.
pub(crate) fn install() -> Result<PrometheusHandle> {
    let mut builder = PrometheusBuilder::new();
    for metric in all() {
        if let MetricKind::Histogram(buckets) = metric.kind {
            let name = Matcher::Full(metric.name.to_owned());
            builder = builder.set_buckets_for_metric(name, &buckets.bounds())?;
        }
    }
    let handle = builder.install_recorder().context("cannot install the metrics recorder")?;
    for Metric { kind, name, help, .. } in all().copied() {
        match kind {
            MetricKind::Counter => describe_counter!(name, unit(name), help),
            MetricKind::Gauge => describe_gauge!(name, unit(name), help),
            MetricKind::Histogram(_) => describe_histogram!(name, unit(name), help),
        }
    }
    Ok(handle)
}

/// Exports counters without labels from the start: a counter that appears with its first event has no rate for it.
pub(crate) fn start_at_zero(services: &Services) {
    let running = services::ALL.iter().filter(|one| services.names().iter().any(|name| name == one.name()));
    let metrics = OWN.iter().chain(running.flat_map(|service| service.metrics));
    for metric in metrics.filter(|metric| metric.kind == MetricKind::Counter && metric.labels.is_empty()) {
        ::metrics::counter!(metric.name).increment(0);
    }
}

/// Adds recorded durations to their buckets regularly. Until then they wait in memory, one by one, and without a
/// Prometheus nothing else removes them.
pub(crate) fn start_upkeep(handle: &PrometheusHandle, tasks: &Tasks) {
    let handle = handle.clone();
    tasks.spawn("metrics", move |task: Task| {
        let handle = handle.clone();
        async move {
            while task.pause(UPKEEP_INTERVAL).await {
                handle.run_upkeep();
                task.heartbeat();
            }
        }
    });
}

/// All metrics in Prometheus's text format. The samples of a service that cannot read them in time are left out. That is a
/// metric and not a log line: while Redis is away, the log would have one for every request.
pub(crate) async fn render(handle: &PrometheusHandle, services: &Services) -> String {
    let samples = services.all().iter().map(|service| async move {
        let mut samples = Samples::default();
        let answer = tokio::time::timeout(SAMPLES_TIMEOUT, service.samples(&mut samples)).await;
        let complete = matches!(answer, Ok(Ok(())));
        ::metrics::gauge!("hob_metrics_incomplete", "service" => service.name()).set(if complete {
            0.0
        } else {
            1.0
        });
        if complete { samples.into_text() } else { String::new() }
    });
    let samples = futures_util::future::join_all(samples).await;
    handle.render() + &samples.concat()
}

/// The unit is part of the name, as Prometheus recommends.
fn unit(name: &str) -> Unit {
    if name.ends_with("_seconds") {
        Unit::Seconds
    } else if name.contains("_bytes") {
        Unit::Bytes
    } else {
        Unit::Count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    const HEAD: &str = "\
# Metrics

The metrics of `/metrics`, which requires the scope `metrics:read`. Generated by `UPDATE_DOCS=1 cargo test -p hob metrics`.

| name | kind | labels | |
|---|---|---|---|
";

    #[test]
    fn metrics_page_is_current() {
        let row = |Metric { kind, name, help, labels }: &Metric| {
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            format!("| `{name}` | {} | {} | {help} |\n", kind.as_str(), labels.join(" "))
        };
        let page = HEAD.to_owned() + &all().map(row).collect::<String>();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(PAGE, &page).unwrap();
        }
        let kept = std::fs::read_to_string(PAGE).unwrap_or_default();
        assert_eq!(kept, page, "docs/metrics.md is stale: UPDATE_DOCS=1 cargo test -p hob metrics");
    }
}
