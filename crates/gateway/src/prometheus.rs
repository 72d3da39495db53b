//! What this instance says of itself at `/metrics`: names and units as Prometheus wants them.

use std::sync::Once;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::rule::RuleName;
use crate::tally::Tally;

const CONNECTIONS: &str = "hob_gateway_connections";
const REQUESTS: &str = "hob_gateway_requests_total";
const REFUSED: &str = "hob_gateway_refused_total";
const ERRORS: &str = "hob_gateway_errors_total";
const RESPONSES: &str = "hob_gateway_response_seconds";
const DECISIONS: &str = "hob_gateway_limit_decisions_total";

/// Says what each is.
pub(crate) fn describe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        describe_gauge!(CONNECTIONS, Unit::Count, "Connections of clients that are open.");
        describe_counter!(REQUESTS, Unit::Count, "Requests that were counted, refused ones included.");
        describe_counter!(REFUSED, Unit::Count, "Requests that the gateway itself refused.");
        describe_counter!(ERRORS, Unit::Count, "Answers with status 400 or above.");
        describe_histogram!(
            RESPONSES,
            Unit::Seconds,
            "Time until an answer began, of requests that were let through."
        );
        describe_counter!(DECISIONS, Unit::Count, "What each rule decided: allowed, refused or shadowed.");
    });
}

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
