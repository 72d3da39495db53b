//! Metrics of this service.

use hob_service::Metric;
use hob_web::MemoryUsage;
use metrics::{counter, gauge, histogram};

const CHECKS: &str = "hob_uptime_checks_total";
const LATE: &str = "hob_uptime_late_seconds";
const MISSED: &str = "hob_uptime_missed_total";
const REFUSED: &str = "hob_uptime_refused_total";
const UNJUDGED: &str = "hob_uptime_unjudged_total";
const DROPPED: &str = "hob_uptime_results_dropped_total";
const ALERTS: &str = "hob_uptime_alert_attempts_total";
const MEMORY: &str = "hob_uptime_memory_bytes";
const MEMORY_EACH: &str = "hob_uptime_memory_bytes_per_monitor";

pub(crate) const METRICS: &[Metric] = &[
    Metric::counter(CHECKS, "Checks by outcome: ok, or the failure class."),
    Metric::summary(LATE, "Delay between the scheduled time and the start of a check."),
    Metric::counter(MISSED, "Scheduled checks that no worker ran."),
    Metric::counter(REFUSED, "Results refused because the claim had expired or the monitor was edited."),
    Metric::counter(UNJUDGED, "Failed checks that did not count because the network of this node was down."),
    Metric::counter(DROPPED, "Results dropped because the queue to the database was full."),
    Metric::counter(ALERTS, "Attempts to deliver an alert, by channel kind and outcome."),
    Metric::gauge(MEMORY, "Memory of all monitors in the store."),
    Metric::gauge(MEMORY_EACH, "Memory of one monitor in the store."),
];

/// Counts a recorded check; `outcome` is `ok` or the failure class.
pub(crate) fn checked(outcome: &'static str) {
    counter!(CHECKS, "outcome" => outcome).increment(1);
}

pub(crate) fn late(late_ms: u64) {
    histogram!(LATE).record(late_ms as f64 / 1000.0);
}

pub(crate) fn missed(checks: u64) {
    counter!(MISSED).increment(checks);
}

pub(crate) fn refused() {
    counter!(REFUSED).increment(1);
}

pub(crate) fn unjudged() {
    counter!(UNJUDGED).increment(1);
}

pub(crate) fn left_out() {
    counter!(DROPPED).increment(1);
}

pub(crate) fn alert_attempted(channel: &'static str, outcome: &'static str) {
    counter!(ALERTS, "channel" => channel, "outcome" => outcome).increment(1);
}

pub(crate) fn measured(memory_usage: &MemoryUsage) {
    gauge!(MEMORY).set(memory_usage.bytes as f64);
    if let Some(bytes) = memory_usage.bytes_per_object() {
        gauge!(MEMORY_EACH).set(bytes as f64);
    }
}
