//! The JSON of the API.

use hob_database::UnixMs;
use hob_web::{Caller, Time};
use serde::Serialize;
use utoipa::ToSchema;

use crate::incident::{Incident, Note, Resolution, Update, UpdateStatus, unix_ms};
use crate::monitor::Monitor;
use crate::monitor::check::{
    AssertionResult, CertificateExpiry, CheckOutcome, DnsSpec, FailureClass, HeartbeatSpec, HttpSpec,
    MonitorKind, Observation, Phases,
};
use crate::monitor::history::{Downtime, Period, Point, ResultRow};
use crate::pages::MAY_WRITE;
use crate::schedule::snapshot::MonitorRow;
use crate::schedule::state::MonitorState;

/// Whether a caller sees the secrets of a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Viewer {
    /// May change monitors.
    Writer,
    Reader,
}

impl Viewer {
    pub(super) fn of(caller: &Caller) -> Self {
        if caller.may(&MAY_WRITE) { Self::Writer } else { Self::Reader }
    }
}

/// A monitor with its state.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Monitor)]
pub(super) struct MonitorView {
    id: String,
    /// Raised by every edit.
    generation: u64,
    state: MonitorState,
    /// Status code of the last successful check; 0 if the protocol has none.
    status_code: Option<u16>,
    /// Milliseconds that the last successful check took.
    latency_ms: Option<u64>,
    /// Time of the last check.
    checked_at: Option<Time>,
    /// Failed checks in a row.
    failures: u32,
    /// The first of those failures.
    failing_since: Option<Time>,
    error: Option<String>,
    name: String,
    kind: MonitorKind,
    target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<HttpSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dns: Option<DnsSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heartbeat: Option<HeartbeatSpec>,
    /// The path that the job of a heartbeat calls. A secret: only for callers with the scope `uptime:write`.
    #[serde(skip_serializing_if = "Option::is_none")]
    heartbeat_path: Option<String>,
    interval_s: u32,
    timeout_s: u32,
    retries: u32,
    retry_delay_s: u32,
    down_interval_s: u32,
    recoveries: u32,
    remind_s: u32,
    assertions: Vec<String>,
    tags: Vec<String>,
    group: String,
    channels: Vec<String>,
    published: bool,
    paused: bool,
    created_at: Time,
}

impl MonitorView {
    pub(super) fn new(row: &MonitorRow, viewer: Viewer) -> Self {
        let monitor: &Monitor = &row.monitor;
        let spec = monitor.spec.clone();
        Self {
            id: monitor.id.to_string(),
            generation: monitor.generation,
            state: row.state,
            status_code: row.status.status_code,
            latency_ms: row.status.latency_ms,
            checked_at: row.status.last_at_ms.map(time),
            failures: row.failures,
            failing_since: row.failing_since_ms.map(time),
            error: row.status.error.clone(),
            timeout_s: spec.timeout_s(),
            down_interval_s: spec.down_interval_s(),
            heartbeat_path: monitor.heartbeat_path().filter(|_| viewer == Viewer::Writer),
            created_at: Time(monitor.created_at),
            name: spec.name,
            kind: spec.kind,
            target: spec.target,
            http: spec.http,
            dns: spec.dns,
            heartbeat: spec.heartbeat,
            interval_s: spec.interval_s,
            retries: spec.retries,
            retry_delay_s: spec.retry_delay_s,
            recoveries: spec.recoveries,
            remind_s: spec.remind_s,
            assertions: spec.assertions,
            tags: spec.tags,
            group: spec.group,
            channels: spec.channels,
            published: spec.published,
            paused: spec.paused,
        }
    }
}

/// The result of a check.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CheckResult)]
pub(super) struct CheckView {
    ok: bool,
    /// State of the monitor after the check.
    state: MonitorState,
    status_code: Option<u16>,
    error: Option<String>,
    class: Option<FailureClass>,
    /// Address of the last connection.
    address: Option<String>,
    certificate_days: Option<i64>,
    phases: PhasesView,
    assertions: Vec<AssertionView>,
}

/// Microseconds of each phase; null if the check did not get there.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Phases)]
struct PhasesView {
    dns_us: Option<u64>,
    connect_us: Option<u64>,
    tls_us: Option<u64>,
    first_byte_us: Option<u64>,
    total_us: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AssertionResult)]
struct AssertionView {
    assertion: String,
    holds: bool,
    found: String,
}

impl CheckView {
    pub(super) fn new(observation: &Observation, state: MonitorState) -> Self {
        let status_code = match &observation.outcome {
            CheckOutcome::Ok { status_code } => Some(*status_code),
            CheckOutcome::Failed(failure) => failure.status_code,
        };
        let assertion = |one: &AssertionResult| AssertionView {
            assertion: one.text.clone(),
            holds: one.holds,
            found: one.found.clone(),
        };
        Self {
            ok: observation.is_ok(),
            state,
            status_code,
            error: observation.failure().map(|failure| failure.message().to_owned()),
            class: observation.failure().map(|failure| failure.class),
            address: observation.address.map(|address| address.to_string()),
            certificate_days: observation.certificate.map(CertificateExpiry::days_left),
            phases: PhasesView::new(&observation.phases),
            assertions: observation.assertions.iter().map(assertion).collect(),
        }
    }
}

impl PhasesView {
    fn new(phases: &Phases) -> Self {
        let us = |phase: Option<std::time::Duration>| {
            phase.and_then(|phase| u64::try_from(phase.as_micros()).ok())
        };
        Self {
            dns_us: us(phases.dns),
            connect_us: us(phases.connect),
            tls_us: us(phases.tls),
            first_byte_us: us(phases.first_byte),
            total_us: us(phases.total),
        }
    }
}

/// An outage.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Incident)]
pub(super) struct IncidentView {
    id: String,
    monitor: String,
    /// The first failed check.
    opened_at: Time,
    /// When the retries were used up.
    confirmed_at: Time,
    #[schema(value_type = FailureClass)]
    class: String,
    message: String,
    failures: u32,
    /// It started in a maintenance window and does not count as downtime.
    maintenance: bool,
    /// When the first alert was sent.
    told_at: Option<Time>,
    reminders: u32,
    acknowledged_at: Option<Time>,
    acknowledged_by: Option<String>,
    resolved_at: Option<Time>,
    resolution: Option<Resolution>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<NoteView>,
    /// What customers see, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    updates: Vec<UpdateView>,
}

/// An update for customers.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = IncidentUpdate)]
pub(super) struct UpdateView {
    written_at: Time,
    author: String,
    status: UpdateStatus,
    text: String,
}

impl UpdateView {
    pub(super) fn new(update: Update) -> Self {
        let Update { written_at, author, status, text } = update;
        Self { written_at: Time(written_at), author, status, text }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Note)]
pub(super) struct NoteView {
    written_at: Time,
    author: String,
    text: String,
}

impl IncidentView {
    pub(super) fn new(incident: Incident, notes: Vec<Note>, updates: Vec<Update>) -> Self {
        Self {
            id: incident.id,
            monitor: incident.monitor_id.to_string(),
            opened_at: Time(incident.opened_at),
            confirmed_at: Time(incident.confirmed_at),
            class: incident.class,
            message: incident.message,
            failures: incident.failures,
            maintenance: incident.maintenance,
            told_at: incident.told_at.map(Time),
            reminders: incident.reminders,
            acknowledged_at: incident.acknowledged_at.map(Time),
            acknowledged_by: incident.acknowledged_by,
            resolved_at: incident.resolved_at.map(Time),
            resolution: incident.resolution,
            notes: notes.into_iter().map(NoteView::new).collect(),
            updates: updates.into_iter().map(UpdateView::new).collect(),
        }
    }
}

impl NoteView {
    pub(super) fn new(note: Note) -> Self {
        Self { written_at: Time(note.written_at), author: note.author, text: note.text }
    }
}

/// A monitor's history.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = History)]
pub(super) struct HistoryView {
    pub(super) period: Period,
    pub(super) uptime: UptimeView,
    /// Totals of the period.
    pub(super) whole: Point,
    /// One point per hour for 24h and 7d, one per day for 30d and 90d.
    pub(super) points: Vec<Point>,
    /// The newest results, the latest first.
    pub(super) results: Vec<ResultRow>,
}

/// Percentage of time without downtime. Maintenance does not count as downtime.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Uptime)]
pub(super) struct UptimeView {
    #[serde(rename = "24h")]
    day: f64,
    #[serde(rename = "7d")]
    week: f64,
    #[serde(rename = "30d")]
    month: f64,
    #[serde(rename = "90d")]
    quarter: f64,
}

impl UptimeView {
    pub(super) fn new(downtime: &Downtime, monitor: &Monitor) -> Self {
        let [day, week, month, quarter] = Period::ALL.map(|period| downtime.uptime(monitor, period));
        Self { day, week, month, quarter }
    }
}

/// How many monitors are in each state.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UptimeSummary)]
pub(super) struct SummaryView {
    pub(super) total: usize,
    pub(super) up: usize,
    pub(super) suspect: usize,
    pub(super) down: usize,
    pub(super) recovering: usize,
    pub(super) paused: usize,
    pub(super) pending: usize,
    pub(super) stale: usize,
}

fn time(ms: u64) -> Time {
    let time: UnixMs = unix_ms(ms);
    Time(time)
}
