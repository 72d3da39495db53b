//! Metrics of this service.

use std::borrow::Cow;
use std::sync::Arc;

use hob_service::{Buckets, Metric, Samples};
use hob_web::MemoryUsage;
use metrics::{counter, gauge, histogram};

use crate::error::Result;
use crate::monitor::Monitor;
use crate::schedule::snapshot::MonitorRow;
use crate::schedule::state::MonitorState;
use crate::uptime::Uptime;

const CHECKS: &str = "hob_uptime_checks_total";
const LATE: &str = "hob_uptime_late_seconds";
const MISSED: &str = "hob_uptime_missed_total";
const REFUSED: &str = "hob_uptime_refused_total";
const UNJUDGED: &str = "hob_uptime_unjudged_total";
const DROPPED: &str = "hob_uptime_results_dropped_total";
const ALERTS: &str = "hob_uptime_alert_attempts_total";
const MEMORY: &str = "hob_uptime_memory_bytes";
const MEMORY_EACH: &str = "hob_uptime_memory_bytes_per_monitor";
const MONITORS: Metric =
    Metric::gauge("hob_uptime_monitors", "Monitors by state, on all nodes.").by(&["state"]);
const UP: Metric = Metric::gauge(
    "hob_uptime_monitor_up",
    "1 if a monitor is up, 0 if it is down or recovering; none while it is paused, pending or stale.",
)
.by(&["monitor", "name", "group", "tags"]);
const LATENCY: Metric = Metric::gauge(
    "hob_uptime_monitor_latency_seconds",
    "Duration of the last check of a monitor, by phase: dns, connect, tls, first_byte, total.",
)
.by(&["monitor", "name", "group", "tags", "phase"]);
const CERTIFICATE: Metric = Metric::gauge(
    "hob_uptime_monitor_certificate_expiry_timestamp_seconds",
    "When the certificate of a monitor expires, as Unix time.",
)
.by(&["monitor", "name", "group", "tags"]);
const OMITTED: Metric =
    Metric::gauge("hob_uptime_monitors_omitted", "Monitors without metrics, because there are too many.");

/// Monitors with metrics: each has up to seven time series, on every node.
const MAX_MONITORS: usize = 1000;
const PHASES: [&str; 4] = ["dns", "connect", "tls", "first_byte"];

pub(crate) const METRICS: &[Metric] = &[
    Metric::counter(CHECKS, "Checks by outcome: ok, or the failure class.").by(&["outcome"]),
    Metric::histogram(LATE, Buckets::Fine, "Delay between the scheduled time and the start of a check."),
    Metric::counter(MISSED, "Scheduled checks that no worker ran."),
    Metric::counter(REFUSED, "Results refused because the claim had expired or the monitor was edited."),
    Metric::counter(UNJUDGED, "Failed checks that did not count because the network of this node was down."),
    Metric::counter(DROPPED, "Results dropped because the queue to the database was full."),
    Metric::counter(ALERTS, "Attempts to deliver an alert, by channel kind and outcome.")
        .by(&["channel", "outcome"]),
    Metric::gauge(MEMORY, "Memory of all monitors in the store."),
    Metric::gauge(MEMORY_EACH, "Memory of one monitor in the store."),
    MONITORS,
    UP,
    LATENCY,
    CERTIFICATE,
    OMITTED,
];

/// Counts a recorded check; `outcome` is `ok` or the failure class.
pub(crate) fn checked(outcome: &'static str) {
    counter!(CHECKS, "outcome" => outcome).increment(1);
}

pub(crate) fn late(late_ms: u64) {
    histogram!(LATE).record(late_ms as f64 / 1000.0);
}

pub(crate) fn missed(checks: u64) {
    counter!(MISSED).increment(checks);
}

pub(crate) fn refused() {
    counter!(REFUSED).increment(1);
}

pub(crate) fn unjudged() {
    counter!(UNJUDGED).increment(1);
}

pub(crate) fn left_out() {
    counter!(DROPPED).increment(1);
}

pub(crate) fn alert_attempted(channel: &'static str, outcome: &'static str) {
    counter!(ALERTS, "channel" => channel, "outcome" => outcome).increment(1);
}

pub(crate) fn measured(memory_usage: &MemoryUsage) {
    gauge!(MEMORY).set(memory_usage.bytes as f64);
    if let Some(bytes) = memory_usage.bytes_per_object() {
        gauge!(MEMORY_EACH).set(bytes as f64);
    }
}

/// The state of each monitor, as the store has it, so that all nodes report the same.
pub(crate) async fn monitors(uptime: &Uptime, samples: &mut Samples) -> Result<()> {
    let monitors = uptime.monitors();
    let snapshot = uptime.snapshot().await?;
    let counts = snapshot.state_counts(&monitors);
    let by_state = MonitorState::ALL.into_iter().map(|state| (state, counts.of(state) as f64));
    samples.gauge(&MONITORS, by_state.map(|(state, count)| ([("state", state.label())], count)));
    let shown = &monitors[..monitors.len().min(MAX_MONITORS)];
    samples.gauge(&OMITTED, [([], (monitors.len() - shown.len()) as f64)]);
    let rows = uptime.rows(&snapshot, shown).await?;
    let rows: Vec<(Labels<'_>, &MonitorRow)> =
        rows.iter().map(|row| (Labels::new(&row.monitor), row)).collect();
    samples.gauge(&UP, rows.iter().filter_map(|(labels, row)| Some((labels.all(), up(row.state)?))));
    let latency = rows.iter().flat_map(|(labels, row)| {
        let status = &row.status;
        let phases = PHASES.into_iter().zip(status.phases_us).chain([("total", status.last_us)]);
        phases.filter_map(|(phase, us)| Some((labels.with("phase", phase), us? as f64 / 1e6)))
    });
    samples.gauge(&LATENCY, latency);
    let certificates = rows
        .iter()
        .filter_map(|(labels, row)| Some((labels.all(), row.status.certificate_expires_s? as f64)));
    samples.gauge(&CERTIFICATE, certificates);
    Ok(())
}

fn up(state: MonitorState) -> Option<f64> {
    match state {
        MonitorState::Up | MonitorState::Suspect => Some(1.0),
        MonitorState::Down | MonitorState::Recovering => Some(0.0),
        MonitorState::Pending | MonitorState::Paused | MonitorState::Stale => None,
    }
}

/// The labels of a monitor.
struct Labels<'a> {
    monitor: &'a Monitor,
    /// With a comma at both ends, so that `tags=~".*,shop,.*"` finds a tag.
    tags: Cow<'a, str>,
}

impl<'a> Labels<'a> {
    fn new(monitor: &'a Arc<Monitor>) -> Self {
        let tags = &monitor.spec.tags;
        let tags = if tags.is_empty() { Cow::Borrowed("") } else { format!(",{},", tags.join(",")).into() };
        Self { monitor, tags }
    }

    fn all(&self) -> [(&'static str, &str); 4] {
        let spec = &self.monitor.spec;
        [
            ("monitor", self.monitor.id.as_str()),
            ("name", &spec.name),
            ("group", &spec.group),
            ("tags", &self.tags),
        ]
    }

    fn with<'s>(&'s self, label: &'static str, value: &'s str) -> [(&'static str, &'s str); 5] {
        let [monitor, name, group, tags] = self.all();
        [monitor, name, group, tags, (label, value)]
    }
}
