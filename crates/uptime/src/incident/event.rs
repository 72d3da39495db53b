//! What the outbox tells of incidents; alerts follow from it.

use hob_database::outbox::Topic;
use hob_database::{Transaction, UnixMs};
use serde::{Deserialize, Serialize};

use super::{Incident, Resolution};
use crate::error::Result;
use crate::monitor::Monitor;

/// What happens to incidents, in its order: one topic, so that nobody hears of an end before its beginning.
pub const INCIDENTS: Topic = Topic("uptime.incidents");

/// The payload of that topic; its key is the incident's id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncidentEvent {
    pub incident: String,
    /// Which event of its kind: 1, or the number of the reminder.
    pub number: u32,
    #[serde(rename = "what")]
    pub kind: IncidentEventKind,
    pub monitor: String,
    pub name: String,
    pub target: String,
    /// Ids of the channels to tell.
    pub channels: Vec<String>,
    pub at_ms: i64,
    pub opened_at_ms: i64,
    pub class: String,
    pub message: String,
    /// Of a resolved one, why it is over.
    pub resolution: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IncidentEventKind {
    Opened,
    Reminded,
    Resolved,
}

impl IncidentEvent {
    pub(super) fn opened(monitor: &Monitor, incident: &Incident) -> Self {
        Self::new(monitor, incident, IncidentEventKind::Opened, incident.confirmed_at)
    }

    pub(super) fn reminded(monitor: &Monitor, incident: &Incident, at: UnixMs) -> Self {
        let number = incident.reminders + 1;
        Self { number, ..Self::new(monitor, incident, IncidentEventKind::Reminded, at) }
    }

    pub(super) fn resolved(monitor: &Monitor, incident: &Incident, at: UnixMs, why: Resolution) -> Self {
        let resolution = Some(why.to_string());
        Self { resolution, ..Self::new(monitor, incident, IncidentEventKind::Resolved, at) }
    }

    fn new(monitor: &Monitor, incident: &Incident, kind: IncidentEventKind, at: UnixMs) -> Self {
        Self {
            incident: incident.id.clone(),
            number: 1,
            kind,
            monitor: monitor.id.to_string(),
            name: monitor.spec.name.clone(),
            target: monitor.spec.target.clone(),
            channels: monitor.spec.channels.clone(),
            at_ms: at.0,
            opened_at_ms: incident.opened_at.0,
            class: incident.class.clone(),
            message: incident.message.clone(),
            resolution: None,
        }
    }

    pub(super) fn emit(&self, tx: &Transaction) -> Result<()> {
        let payload = serde_json::to_string(self);
        let payload = payload.unwrap_or_else(|error| unreachable!("an event is plain data: {error}"));
        Ok(tx.emit(INCIDENTS, &self.incident, payload)?)
    }
}
