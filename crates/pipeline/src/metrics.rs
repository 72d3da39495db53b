//! Prometheus metrics.

use hob_service::Metric;
use metrics::{counter, gauge};

use crate::quota::QuotaName;

const DRIVEN: &str = "hob_pipeline_runs_driven";
const CALLS: &str = "hob_pipeline_calls_total";
const ITEMS: &str = "hob_pipeline_items_total";
const FOREIGN: &str = "hob_pipeline_foreign_calls_total";
const REBUILDS: &str = "hob_pipeline_quota_rebuilds_total";

pub(crate) const METRICS: &[Metric] = &[
    Metric::gauge(DRIVEN, "Runs that this node executes."),
    Metric::counter(CALLS, "Calls by quota and status; status 0 if there was no response."),
    Metric::counter(ITEMS, "Attempts to process an item, by outcome."),
    Metric::counter(FOREIGN, "Calls that other clients made with a quota's credential."),
    Metric::counter(REBUILDS, "Rebuilds of a quota from the call log."),
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
