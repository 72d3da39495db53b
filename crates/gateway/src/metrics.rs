//! What this instance says of itself at `/metrics`: names and units as Prometheus wants them.

use hob_service::Metric;
use metrics::{counter, gauge, histogram};

use crate::limiter::rule::RuleName;
use crate::traffic::counts::Counts;

const CONNECTIONS: &str = "hob_gateway_connections";
const REQUESTS: &str = "hob_gateway_requests_total";
const REFUSED: &str = "hob_gateway_refused_total";
const ERRORS: &str = "hob_gateway_errors_total";
const RESPONSES: &str = "hob_gateway_response_seconds";
const DECISIONS: &str = "hob_gateway_limit_decisions_total";

pub(crate) const METRICS: &[Metric] = &[
    Metric::gauge(CONNECTIONS, "Connections of clients that are open."),
    Metric::counter(REQUESTS, "Requests that were counted, refused ones included."),
    Metric::counter(REFUSED, "Requests that the gateway itself refused."),
    Metric::counter(ERRORS, "Answers with status 400 or above."),
    Metric::summary(RESPONSES, "Time until an answer began, of what was let through."),
    Metric::counter(DECISIONS, "What each rule decided: allowed, refused or shadowed."),
];

/// Takes note of the connections that are open.
pub(crate) fn set_connections(open: u32) {
    gauge!(CONNECTIONS).set(open);
}

/// Takes note of what was counted since the last time.
pub(crate) fn record_counts(counts: &Counts) {
    let sum = counts.sum();
    counter!(REQUESTS).increment(sum.requests);
    counter!(REFUSED).increment(sum.refused);
    counter!(ERRORS).increment(sum.errors);
    let responses = histogram!(RESPONSES);
    for endpoint in counts.endpoints.values() {
        for ((_, bucket), count) in &endpoint.buckets {
            let seconds = bucket.middle_us() as f64 / 1e6;
            responses.record_many(seconds, usize::try_from(*count).unwrap_or(usize::MAX));
        }
    }
}

/// Takes note of what a rule decided since the last time.
pub(crate) fn record_decisions(rule: &RuleName, [allowed, refused, shadowed]: [u64; 3]) {
    for (decision, count) in [("allowed", allowed), ("refused", refused), ("shadowed", shadowed)] {
        counter!(DECISIONS, "rule" => rule.to_string(), "decision" => decision).increment(count);
    }
}
