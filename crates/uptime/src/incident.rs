//! Incidents (U3 U5 U6 U8): opened, acknowledged, annotated and resolved in the database. Every change is idempotent on
//! the monitor, the fence of the check that found it and its time, and is written in one transaction with the event that
//! [alerts](alert) follow from. (A store that goes back in time repeats fences, but not times.)

pub mod alert;
mod event;
mod update;

use hob_database::{Database, Transaction, UnixMs};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use event::{INCIDENTS, IncidentEvent, IncidentEventKind};
pub use update::{MAX_UPDATE_BYTES, MAX_UPDATES, PublishOutcome, Update, UpdateStatus, publish};

use crate::database::incidents;
use crate::error::Result;
use crate::keys::MonitorId;
use crate::monitor::Monitor;
use crate::schedule::record::{Alerted, PendingChange};
use crate::schedule::state::IncidentChange;
use crate::status::{StatusChange, StatusEvent};

/// The most notes of an incident.
pub const MAX_NOTES: u64 = 100;
pub const MAX_NOTE_BYTES: usize = 4000;

/// An outage of one monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    pub id: String,
    pub monitor_id: MonitorId,
    pub opened_fence: u64,
    /// The first failed check.
    pub opened_at: UnixMs,
    /// When the retries were used up.
    pub confirmed_at: UnixMs,
    pub class: String,
    pub message: String,
    pub failures: u32,
    /// It started in a maintenance window and does not count as downtime.
    pub maintenance: bool,
    /// When the first alert was sent.
    pub told_at: Option<UnixMs>,
    pub reminders: u32,
    pub reminded_at: Option<UnixMs>,
    pub acknowledged_at: Option<UnixMs>,
    pub acknowledged_by: Option<String>,
    pub resolved_at: Option<UnixMs>,
    pub resolution: Option<Resolution>,
}

/// Why an incident was resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = IncidentResolution)]
pub enum Resolution {
    Recovered,
    /// The monitor was paused.
    Paused,
}

/// A note that a user added to an incident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub written_at: UnixMs,
    pub author: String,
    pub text: String,
}

/// Which incidents a list shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Filter {
    #[default]
    All,
    Open,
    Of(MonitorId),
}

/// Whether a failure sends alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alerting {
    Enabled,
    /// A maintenance window covers the monitor.
    Suppressed,
}

/// The outcome of a request to acknowledge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcknowledgeOutcome {
    Acknowledged(Box<Incident>),
    /// It was acknowledged or resolved before and stays as it is.
    Already(Box<Incident>),
    NotFound,
}

/// Writes a change to the database and returns whether alerts were sent for the incident. Idempotent.
pub async fn save_change(
    database: &Database,
    monitor: &Monitor,
    change: &PendingChange,
    alerting: Alerting,
) -> Result<Alerted> {
    database
        .write(|tx| async move {
            match change.change {
                IncidentChange::Opened => open(&tx, monitor, change, alerting).await,
                IncidentChange::Resolved => {
                    let at = unix_ms(change.at_ms);
                    let fence = Some(change.fence.get());
                    resolve(&tx, monitor, at, Resolution::Recovered, fence).await?;
                    Ok(Alerted::Yes)
                }
            }
        })
        .await
}

async fn open(
    tx: &Transaction,
    monitor: &Monitor,
    change: &PendingChange,
    alerting: Alerting,
) -> Result<Alerted> {
    let id = format!("i{:012x}", rand::random::<u64>() >> 16);
    let inserted = incidents::insert(tx, &id, change, alerting).await?;
    let Some(incident) = incidents::open_for(tx, &monitor.id).await? else { return Ok(Alerted::NotYet) };
    if inserted && incident.told_at.is_some() {
        emit_opened(tx, monitor, &incident)?;
    }
    Ok(if incident.told_at.is_some() { Alerted::Yes } else { Alerted::NotYet })
}

/// Resolves the open incident of a monitor, unless it was opened by a later check. A check is later if its fence or its
/// time is: after a failover the clock may be behind, and a store that goes back in time repeats fences.
pub async fn resolve(
    tx: &Transaction,
    monitor: &Monitor,
    at: UnixMs,
    resolution: Resolution,
    fence: Option<u64>,
) -> Result<()> {
    let Some(open) = incidents::open_for(tx, &monitor.id).await? else { return Ok(()) };
    if fence.is_some_and(|fence| fence <= open.opened_fence) && at <= open.confirmed_at {
        return Ok(());
    }
    let at = at.max(open.opened_at);
    incidents::resolve(tx, &open.id, at, fence, resolution).await?;
    if open.told_at.is_some() {
        IncidentEvent::resolved(monitor, &open, at, resolution).emit(tx)?;
        let change = StatusChange::Resolved { monitor: monitor.id.to_string() };
        if resolution == Resolution::Recovered {
            StatusEvent::of_incident(monitor, &open.id, at.0, change).emit(tx)?;
        }
    }
    Ok(())
}

/// Emits the events of an incident whose alerts are sent now.
fn emit_opened(tx: &Transaction, monitor: &Monitor, incident: &Incident) -> Result<()> {
    IncidentEvent::opened(monitor, incident).emit(tx)?;
    let change = StatusChange::Opened { monitor: monitor.id.to_string() };
    StatusEvent::of_incident(monitor, &incident.id, incident.opened_at.0, change).emit(tx)
}

/// When the next alert about an open incident is due: the first one if none was sent, or a reminder. `None` if there will
/// be no other.
#[must_use]
pub fn next_alert_at(monitor: &Monitor, incident: &Incident) -> Option<UnixMs> {
    let every_ms = i64::from(monitor.spec.remind_s) * 1000;
    match (incident.acknowledged_at, incident.told_at) {
        (Some(_), _) => None,
        (None, None) => Some(incident.opened_at),
        (None, Some(_)) if every_ms == 0 => None,
        (None, Some(told_at)) => Some(UnixMs(incident.reminded_at.unwrap_or(told_at).0 + every_ms)),
    }
}

/// Sends the first alert of an incident whose maintenance window has ended, or a reminder that is due. Returns the
/// monitor if this was the first alert.
pub async fn remind(
    database: &Database,
    monitor: &Monitor,
    incident: &Incident,
    alerting: Alerting,
) -> Result<Option<MonitorId>> {
    if alerting == Alerting::Suppressed {
        return Ok(None);
    }
    database
        .write(|tx| async move {
            let open = incidents::open_for(&tx, &monitor.id).await?;
            let Some(open) = open.filter(|open| open.id == incident.id) else {
                return Ok(None);
            };
            if next_alert_at(monitor, &open).is_none_or(|due_at| tx.now() < due_at) {
                return Ok(None);
            }
            if open.told_at.is_none() {
                incidents::mark_alerted(&tx, &open.id).await?;
                emit_opened(&tx, monitor, &open)?;
                return Ok(Some(monitor.id.clone()));
            }
            incidents::mark_reminded(&tx, &open.id).await?;
            IncidentEvent::reminded(monitor, &open, tx.now()).emit(&tx)?;
            Ok(None)
        })
        .await
}

/// Acknowledges an incident: no more reminders are sent.
pub async fn acknowledge(database: &Database, id: &str, who: &str) -> Result<AcknowledgeOutcome> {
    database
        .write(|tx| async move {
            let changed = incidents::acknowledge(&tx, id, who).await?;
            Ok(match incidents::by_id(&tx, id).await? {
                None => AcknowledgeOutcome::NotFound,
                Some(incident) if changed => AcknowledgeOutcome::Acknowledged(Box::new(incident)),
                Some(incident) => AcknowledgeOutcome::Already(Box::new(incident)),
            })
        })
        .await
}

/// Result of [`annotate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnotateOutcome {
    Added(Note),
    NotFound,
    /// The incident has [`MAX_NOTES`] notes.
    LimitReached,
}

pub async fn annotate(database: &Database, id: &str, author: &str, text: &str) -> Result<AnnotateOutcome> {
    database
        .write(|tx| async move {
            if incidents::by_id(&tx, id).await?.is_none() {
                return Ok(AnnotateOutcome::NotFound);
            }
            if incidents::count_notes(&tx, id).await? >= MAX_NOTES {
                return Ok(AnnotateOutcome::LimitReached);
            }
            let note = Note { written_at: tx.now(), author: author.to_owned(), text: text.to_owned() };
            incidents::insert_note(&tx, id, &note).await?;
            Ok(AnnotateOutcome::Added(note))
        })
        .await
}

pub(crate) fn unix_ms(ms: u64) -> UnixMs {
    UnixMs(i64::try_from(ms).unwrap_or(i64::MAX))
}

hob_units::names!(Resolution { Recovered = "recovered", Paused = "paused" });
