//! What `/metrics` tells, all of it in one table: for Prometheus, and for `docs/metrics.md`.

use hob_service::{Metric, MetricKind};
use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

use crate::services;

/// The program's own. The services declare theirs.
const OWN: &[Metric] = &[
    Metric::summary("hob_http_request_seconds", "Time that a request took, by route, method and status."),
    Metric::counter(
        "hob_log_dropped_lines_total",
        "Log lines dropped because standard error was not read in time.",
    ),
    Metric::gauge("hob_engine_memory_bytes", "What the embedded store holds."),
    Metric::gauge("hob_engine_keys", "Keys in the embedded store."),
    Metric::summary(
        "hob_store_operation_seconds",
        "Time that the store took to answer, by kind of operation.",
    ),
    Metric::counter("hob_store_operation_errors_total", "Operations that the store did not answer."),
    Metric::counter("hob_store_connection_attempts_total", "Attempts to connect to the store."),
    Metric::counter("hob_store_connection_failures_total", "Attempts to connect to the store that failed."),
    Metric::gauge("hob_store_connections", "Connections to the store that there should be."),
    Metric::gauge("hob_store_connections_up", "Connections to the store that there are."),
];

fn all() -> impl Iterator<Item = &'static Metric> {
    OWN.iter().chain(services::ALL.iter().flat_map(|service| service.metrics))
}

/// Says of each what it is. The recorder must be installed by then.
pub(crate) fn describe() {
    for Metric { kind, name, help } in all().copied() {
        match kind {
            MetricKind::Counter => describe_counter!(name, unit(name), help),
            MetricKind::Gauge => describe_gauge!(name, unit(name), help),
            MetricKind::Summary => describe_histogram!(name, unit(name), help),
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
        let row = |Metric { kind, name, help }: &Metric| {
            format!("| `{name}` | {} | {help} |\n", format!("{kind:?}").to_lowercase())
        };
        let page = HEAD.to_owned() + &all().map(row).collect::<String>();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(PAGE, &page).unwrap();
        }
        let kept = std::fs::read_to_string(PAGE).unwrap_or_default();
        assert_eq!(kept, page, "docs/metrics.md is stale: UPDATE_DOCS=1 cargo test -p hob table");
    }
}
