//! What this instance says of itself at `/metrics`: names and units as Prometheus wants them.

use metrics::{counter, gauge, histogram};

use crate::rule::RuleName;
use crate::tally::Tally;

const CONNECTIONS: &str = "hob_gateway_connections";
const REQUESTS: &str = "hob_gateway_requests_total";
const REFUSED: &str = "hob_gateway_refused_total";
const ERRORS: &str = "hob_gateway_errors_total";
const RESPONSES: &str = "hob_gateway_response_seconds";
const DECISIONS: &str = "hob_gateway_limit_decisions_total";

/// Takes note of the connections that are open.
pub(crate) fn connections(open: u32) {
    gauge!(CONNECTIONS).set(open);
}

/// Takes note of what was counted since the last time.
pub(crate) fn counted(tally: &Tally) {
    let sum = tally.sum();
    counter!(REQUESTS).increment(sum.requests);
    counter!(REFUSED).increment(sum.refused);
    counter!(ERRORS).increment(sum.errors);
    let responses = histogram!(RESPONSES);
    for counted in tally.endpoints.values() {
        for ((_, bucket), count) in &counted.buckets {
            let seconds = bucket.middle_us() as f64 / 1e6;
            responses.record_many(seconds, usize::try_from(*count).unwrap_or(usize::MAX));
        }
    }
}

/// Takes note of what a rule decided since the last time.
pub(crate) fn decided(rule: &RuleName, [allowed, refused, shadowed]: [u64; 3]) {
    for (decision, count) in [("allowed", allowed), ("refused", refused), ("shadowed", shadowed)] {
        counter!(DECISIONS, "rule" => rule.to_string(), "decision" => decision).increment(count);
    }
}
