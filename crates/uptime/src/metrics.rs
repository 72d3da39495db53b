//! What uptime exports at `/metrics`.

use hob_service::Metric;
use hob_web::Footprint;
use metrics::{counter, gauge, histogram};

const CHECKS: &str = "hob_uptime_checks_total";
const LATE: &str = "hob_uptime_late_seconds";
const MISSED: &str = "hob_uptime_missed_total";
const REFUSED: &str = "hob_uptime_refused_total";
const UNJUDGED: &str = "hob_uptime_unjudged_total";
const LEFT_OUT: &str = "hob_uptime_results_left_out_total";
const ALERTS: &str = "hob_uptime_alert_attempts_total";
const MEMORY: &str = "hob_uptime_memory_bytes";
const MEMORY_EACH: &str = "hob_uptime_memory_bytes_per_monitor";

pub(crate) const METRICS: &[Metric] = &[
    Metric::counter(CHECKS, "Checks by outcome: ok, or the class of the failure."),
    Metric::summary(LATE, "How long after its turn a check began."),
    Metric::counter(MISSED, "Turns of monitors that nobody took."),
    Metric::counter(REFUSED, "Results that came too late to be recorded."),
    Metric::counter(UNJUDGED, "Failures not judged since this node's own network was gone."),
    Metric::counter(LEFT_OUT, "Results left out of the history by a full queue."),
    Metric::counter(ALERTS, "Attempts to deliver an alert, by channel and outcome."),
    Metric::gauge(MEMORY, "What all monitors take in the store."),
    Metric::gauge(MEMORY_EACH, "What a monitor takes in the store."),
];

/// A check was recorded; `outcome` is `ok` or the class of the failure.
pub(crate) fn checked(outcome: &'static str) {
    counter!(CHECKS, "outcome" => outcome).increment(1);
}

pub(crate) fn late(late_ms: u64) {
    histogram!(LATE).record(late_ms as f64 / 1000.0);
}

pub(crate) fn missed(turns: u64) {
    counter!(MISSED).increment(turns);
}

pub(crate) fn refused() {
    counter!(REFUSED).increment(1);
}

pub(crate) fn unjudged() {
    counter!(UNJUDGED).increment(1);
}

pub(crate) fn left_out() {
    counter!(LEFT_OUT).increment(1);
}

pub(crate) fn alert_attempted(channel: &'static str, outcome: &'static str) {
    counter!(ALERTS, "channel" => channel, "outcome" => outcome).increment(1);
}

pub(crate) fn measured(footprint: &Footprint) {
    gauge!(MEMORY).set(footprint.bytes as f64);
    if let Some(bytes) = footprint.per_thing() {
        gauge!(MEMORY_EACH).set(bytes as f64);
    }
}
