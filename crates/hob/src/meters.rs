//! What `/metrics` tells, all of it in one table: for Prometheus, and for `docs/metrics.md`.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

use Kind::{Counter, Gauge, Summary};

#[derive(Clone, Copy, Debug)]
enum Kind {
    Counter,
    Gauge,
    /// Quantiles of the last minutes, their sum and count.
    Summary,
}

const METRICS: [(Kind, &str, &str); 37] = [
    (Summary, "hob_http_request_seconds", "Time that a request took, by route, method and status."),
    (
        Counter,
        "hob_log_dropped_lines_total",
        "Log lines dropped because standard error was not read in time.",
    ),
    (Gauge, "hob_store_memory_bytes", "What the embedded store holds."),
    (Gauge, "hob_store_keys", "Keys in the embedded store."),
    (Summary, "hob_hot_operation_seconds", "Time that hot state took to answer, by kind of operation."),
    (Counter, "hob_hot_operation_errors_total", "Operations that hot state did not answer."),
    (Counter, "hob_hot_connection_attempts_total", "Attempts to connect to hot state."),
    (Counter, "hob_hot_connection_failures_total", "Attempts to connect to hot state that failed."),
    (Gauge, "hob_hot_links", "Connections to hot state that there should be."),
    (Gauge, "hob_hot_links_up", "Connections to hot state that there are."),
    (Gauge, "hob_gateway_connections", "Connections of clients that are open."),
    (Counter, "hob_gateway_requests_total", "Requests that were counted, refused ones included."),
    (Counter, "hob_gateway_refused_total", "Requests that the gateway itself refused."),
    (Counter, "hob_gateway_errors_total", "Answers with status 400 or above."),
    (Summary, "hob_gateway_response_seconds", "Time until an answer began, of what was let through."),
    (Counter, "hob_gateway_limit_decisions_total", "What each rule decided: allowed, refused or shadowed."),
    (Counter, "hob_uptime_checks_total", "Checks by outcome: ok, or the class of the failure."),
    (Summary, "hob_uptime_late_seconds", "How long after its turn a check began."),
    (Counter, "hob_uptime_missed_total", "Turns of monitors that nobody took."),
    (Counter, "hob_uptime_refused_total", "Results that came too late to be recorded."),
    (Counter, "hob_uptime_unjudged_total", "Failures not judged since this node's own network was gone."),
    (Counter, "hob_uptime_results_left_out_total", "Results left out of the history by a full queue."),
    (Counter, "hob_uptime_alert_attempts_total", "Attempts to deliver an alert, by channel and outcome."),
    (Gauge, "hob_uptime_memory_bytes", "What all monitors take in hot state."),
    (Gauge, "hob_uptime_memory_bytes_per_monitor", "What a monitor takes in hot state."),
    (Gauge, "hob_chat_connections", "Connections of clients to this node."),
    (Counter, "hob_chat_messages_total", "Messages that this node took."),
    (Counter, "hob_chat_deliveries_total", "What this node told its clients: messages, typing, presence."),
    (Gauge, "hob_load_runs", "Runs that wait or are under way on any node, by state."),
    (Counter, "hob_load_runs_ended_total", "Runs conducted by this node that have ended, by state."),
    (Counter, "hob_load_requests_total", "Requests of this node's generator, by outcome."),
    (Gauge, "hob_load_late_p99_seconds", "How late this node's generator was in its last second."),
    (Gauge, "hob_pipeline_runs_driven", "Runs that this node works on."),
    (Counter, "hob_pipeline_calls_total", "Calls by quota and status; 0 where no answer came."),
    (Counter, "hob_pipeline_items_total", "Attempts at items, by outcome."),
    (Counter, "hob_pipeline_foreign_calls_total", "Calls made elsewhere with a quota's credential."),
    (Counter, "hob_pipeline_quota_rebuilds_total", "Quotas that were rebuilt from the call log."),
];

/// Says of each what it is. The recorder must be installed by then.
pub(crate) fn describe() {
    for (kind, name, help) in METRICS {
        match kind {
            Counter => describe_counter!(name, unit(name), help),
            Gauge => describe_gauge!(name, unit(name), help),
            Summary => describe_histogram!(name, unit(name), help),
        }
    }
}

/// As Prometheus wants it, the unit is in the name.
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

What `/metrics` tells Prometheus, with a token of scope `metrics:read`. Made by `UPDATE_DOCS=1 cargo test -p hob table`.

| name | kind | |
|---|---|---|
";

    #[test]
    fn the_table_is_in_the_docs() {
        let row = |(kind, name, help): (Kind, &str, &str)| {
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
