//! The metrics of this instance at `/metrics`.

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
    Metric::gauge(CONNECTIONS, "Open client connections."),
    Metric::counter(REQUESTS, "Requests, including refused ones."),
    Metric::counter(REFUSED, "Requests that the gateway refused."),
    Metric::counter(ERRORS, "Responses with status 400 or above."),
    Metric::summary(RESPONSES, "Time until the response began, excluding refused requests."),
    Metric::counter(DECISIONS, "Decisions by rule: allowed, refused or shadowed."),
];

pub(crate) fn set_connections(open: u32) {
    gauge!(CONNECTIONS).set(open);
}

/// Adds counts of requests.
pub(crate) fn record_counts(counts: &Counts) {
    let sum = counts.sum();
    counter!(REQUESTS).increment(sum.requests);
    counter!(REFUSED).increment(sum.refused);
    counter!(ERRORS).increment(sum.errors);
    let responses = histogram!(RESPONSES);
    for endpoint in counts.endpoints.values() {
        for ((_, bucket), count) in &endpoint.buckets {
            let seconds = bucket.middle() as f64 / 1e6;
            responses.record_many(seconds, usize::try_from(*count).unwrap_or(usize::MAX));
        }
    }
}

/// Adds the decisions of a rule.
pub(crate) fn record_decisions(rule: &RuleName, [allowed, refused, shadowed]: [u64; 3]) {
    for (decision, count) in [("allowed", allowed), ("refused", refused), ("shadowed", shadowed)] {
        counter!(DECISIONS, "rule" => rule.to_string(), "decision" => decision).increment(count);
    }
}
