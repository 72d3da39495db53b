//! Events of incidents in the outbox. Alerts follow from them.

use hob_database::outbox::Topic;
use hob_database::{Transaction, UnixMs};
use serde::{Deserialize, Serialize};

use super::{Incident, Resolution};
use crate::error::Result;
use crate::monitor::Monitor;

/// All events of incidents. One topic keeps their order.
pub const INCIDENTS: Topic = Topic("uptime.incidents");

/// The payload of [`INCIDENTS`]; the key is the id of the incident.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncidentEvent {
    pub incident: String,
    /// 1, or the number of the reminder.
    pub number: u32,
    #[serde(rename = "what")]
    pub kind: IncidentEventKind,
    pub monitor: String,
    pub name: String,
    pub target: String,
    /// Ids or names of the channels to alert.
    pub channels: Vec<String>,
    pub at_ms: i64,
    pub opened_at_ms: i64,
    pub class: String,
    pub message: String,
    /// Why it was resolved.
    pub resolution: Option<Resolution>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IncidentEventKind {
    Opened,
    Reminded,
    Resolved,
}

hob_units::names!(IncidentEventKind { Opened = "opened", Reminded = "reminded", Resolved = "resolved" });

impl IncidentEvent {
    pub(super) fn opened(monitor: &Monitor, incident: &Incident) -> Self {
        Self::new(monitor, incident, IncidentEventKind::Opened, incident.confirmed_at)
    }

    pub(super) fn reminded(monitor: &Monitor, incident: &Incident, at: UnixMs) -> Self {
        let number = incident.reminders + 1;
        Self { number, ..Self::new(monitor, incident, IncidentEventKind::Reminded, at) }
    }

    pub(super) fn resolved(monitor: &Monitor, incident: &Incident, at: UnixMs, why: Resolution) -> Self {
        Self { resolution: Some(why), ..Self::new(monitor, incident, IncidentEventKind::Resolved, at) }
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
