//! The metrics of this instance at `/metrics`.

use hob_admission::{Decisions, Limiter, RuleName};
use hob_service::{Buckets, Metric, Samples};
use hob_units::format_duration;
use metrics::{counter, gauge, histogram};

use crate::traffic::counts::Counts;

const CONNECTIONS: &str = "hob_gateway_connections";
const REQUESTS: &str = "hob_gateway_requests_total";
const REFUSED: &str = "hob_gateway_refused_total";
const ERRORS: &str = "hob_gateway_errors_total";
const ERROR_RESPONSES: &str = "hob_gateway_error_responses_total";
const RESPONSES: &str = "hob_gateway_response_seconds";
const DECISIONS: &str = "hob_gateway_limit_decisions_total";
const RULE_LIMIT: Metric =
    Metric::gauge("hob_gateway_rule_limit", "Requests that a rule allows each caller, by rule and window.")
        .by(&["rule", "window"]);

pub(crate) const METRICS: &[Metric] = &[
    Metric::gauge(CONNECTIONS, "Open client connections."),
    Metric::counter(REQUESTS, "Requests, including refused ones."),
    Metric::counter(REFUSED, "Requests that the gateway refused."),
    Metric::counter(ERRORS, "Responses with status 400 or above."),
    Metric::counter(
        ERROR_RESPONSES,
        "Responses with status 400 or above, by status. A request that the gateway refused has status 429.",
    )
    .by(&["status"]),
    Metric::histogram(RESPONSES, Buckets::Fine, "Time until the response began, excluding refused requests."),
    Metric::counter(DECISIONS, "Decisions by rule: allowed, refused or shadowed.").by(&["rule", "decision"]),
    RULE_LIMIT,
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
    for (status, count) in &sum.statuses {
        counter!(ERROR_RESPONSES, "status" => status.to_string()).increment(*count);
    }
    let responses = histogram!(RESPONSES);
    for endpoint in counts.endpoints.values() {
        for ((_, bucket), count) in &endpoint.buckets {
            let seconds = bucket.middle() as f64 / 1e6;
            responses.record_many(seconds, usize::try_from(*count).unwrap_or(usize::MAX));
        }
    }
}

/// Adds the decisions of a rule.
pub(crate) fn record_decisions(rule: &RuleName, Decisions { allowed, refused, shadowed }: Decisions) {
    for (decision, count) in [("allowed", allowed), ("refused", refused), ("shadowed", shadowed)] {
        counter!(DECISIONS, "rule" => rule.to_string(), "decision" => decision).increment(count);
    }
}

/// The limits of the current rules.
pub(crate) fn rule_limits(limiter: &Limiter, samples: &mut Samples) {
    let rules = limiter.rules();
    let limits: Vec<(&str, String, u32)> = rules
        .iter()
        .flat_map(|active| {
            let windows = active.rule().limit().windows().iter();
            windows
                .map(|window| (active.rule().name().as_str(), format_duration(window.period), window.limit))
        })
        .collect();
    samples.gauge(
        &RULE_LIMIT,
        limits
            .iter()
            .map(|(rule, window, limit)| ([("rule", *rule), ("window", window.as_str())], f64::from(*limit))),
    );
}
