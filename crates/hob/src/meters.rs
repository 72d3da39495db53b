//! What `/metrics` tells, all of it in one table: for Prometheus, and for `docs/metrics.md`.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

use Kind::{Counter, Gauge, Summary};
use Unit::{Bytes, Count, Seconds};

#[derive(Clone, Copy, Debug)]
enum Kind {
    Counter,
    Gauge,
    /// Quantiles of the last minutes, their sum and count.
    Summary,
}

struct Metric(&'static str, Kind, Unit, &'static str);

const METRICS: [Metric; 36] = [
    Metric(
        "hob_http_request_seconds",
        Summary,
        Seconds,
        "Time that a request took, by route, method and status.",
    ),
    Metric("hob_store_memory_bytes", Gauge, Bytes, "What the embedded store holds."),
    Metric("hob_store_keys", Gauge, Count, "Keys in the embedded store."),
    Metric(
        "hob_hot_operation_seconds",
        Summary,
        Seconds,
        "Time that hot state took to answer, by kind of operation.",
    ),
    Metric("hob_hot_operation_errors_total", Counter, Count, "Operations that hot state did not answer."),
    Metric("hob_hot_connection_attempts_total", Counter, Count, "Attempts to connect to hot state."),
    Metric(
        "hob_hot_connection_failures_total",
        Counter,
        Count,
        "Attempts to connect to hot state that failed.",
    ),
    Metric("hob_hot_links", Gauge, Count, "Connections to hot state that there should be."),
    Metric("hob_hot_links_up", Gauge, Count, "Connections to hot state that there are."),
    Metric("hob_gateway_connections", Gauge, Count, "Connections of clients that are open."),
    Metric(
        "hob_gateway_requests_total",
        Counter,
        Count,
        "Requests that were counted, refused ones included.",
    ),
    Metric("hob_gateway_refused_total", Counter, Count, "Requests that the gateway itself refused."),
    Metric("hob_gateway_errors_total", Counter, Count, "Answers with status 400 or above."),
    Metric(
        "hob_gateway_response_seconds",
        Summary,
        Seconds,
        "Time until an answer began, of what was let through.",
    ),
    Metric(
        "hob_gateway_limit_decisions_total",
        Counter,
        Count,
        "What each rule decided: allowed, refused or shadowed.",
    ),
    Metric("hob_uptime_checks_total", Counter, Count, "Checks by outcome: ok, or the class of the failure."),
    Metric("hob_uptime_late_seconds", Summary, Seconds, "How long after its turn a check began."),
    Metric("hob_uptime_missed_total", Counter, Count, "Turns of monitors that nobody took."),
    Metric("hob_uptime_refused_total", Counter, Count, "Results that came too late to be recorded."),
    Metric(
        "hob_uptime_unjudged_total",
        Counter,
        Count,
        "Failures not judged since this node's own network was gone.",
    ),
    Metric(
        "hob_uptime_results_left_out_total",
        Counter,
        Count,
        "Results left out of the history by a full queue.",
    ),
    Metric(
        "hob_uptime_alert_attempts_total",
        Counter,
        Count,
        "Attempts to deliver an alert, by channel and outcome.",
    ),
    Metric("hob_uptime_memory_bytes", Gauge, Bytes, "What all monitors take in hot state."),
    Metric("hob_uptime_memory_bytes_per_monitor", Gauge, Bytes, "What a monitor takes in hot state."),
    Metric("hob_chat_connections", Gauge, Count, "Connections of clients to this node."),
    Metric("hob_chat_messages_total", Counter, Count, "Messages that this node took."),
    Metric(
        "hob_chat_deliveries_total",
        Counter,
        Count,
        "What this node told its clients: messages, typing, presence.",
    ),
    Metric("hob_load_runs", Gauge, Count, "Runs that wait or are under way on any node, by state."),
    Metric(
        "hob_load_runs_ended_total",
        Counter,
        Count,
        "Runs conducted by this node that have ended, by state.",
    ),
    Metric("hob_load_requests_total", Counter, Count, "Requests of this node's generator, by outcome."),
    Metric(
        "hob_load_late_p99_seconds",
        Gauge,
        Seconds,
        "How late this node's generator was in its last second.",
    ),
    Metric("hob_pipeline_runs_driven", Gauge, Count, "Runs that this node works on."),
    Metric("hob_pipeline_calls_total", Counter, Count, "Calls by quota and status; 0 where no answer came."),
    Metric("hob_pipeline_items_total", Counter, Count, "Attempts at items, by outcome."),
    Metric(
        "hob_pipeline_foreign_calls_total",
        Counter,
        Count,
        "Calls made elsewhere with a quota's credential.",
    ),
    Metric(
        "hob_pipeline_quota_rebuilds_total",
        Counter,
        Count,
        "Quotas that were rebuilt from the call log.",
    ),
];

/// Says of each what it is. The recorder must be installed by then.
pub(crate) fn describe() {
    for Metric(name, kind, unit, help) in METRICS {
        match kind {
            Counter => describe_counter!(name, unit, help),
            Gauge => describe_gauge!(name, unit, help),
            Summary => describe_histogram!(name, unit, help),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    const HEAD: &str = "\
# Metrics

What `/metrics` tells Prometheus, with a token of scope `metrics:read`. Made by `UPDATE_DOCS=1 cargo test -p hob table`.

| name | kind | |
|---|---|---|
";

    #[test]
    fn the_table_is_in_the_docs() {
        let row = |Metric(name, kind, _, help): Metric| {
            format!("| `{name}` | {} | {help} |\n", format!("{kind:?}").to_lowercase())
        };
        let page = HEAD.to_owned() + &METRICS.map(row).concat();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(PAGE, &page).unwrap();
        }
        let kept = std::fs::read_to_string(PAGE).unwrap_or_default();
        assert_eq!(kept, page, "docs/metrics.md is stale: UPDATE_DOCS=1 cargo test -p hob table");
    }
}
