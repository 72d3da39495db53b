//! Events for the readers of status pages, in the outbox.

use hob_database::Transaction;
use hob_database::outbox::Topic;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::incident::UpdateStatus;
use crate::monitor::Monitor;
use crate::monitor::maintenance::Maintenance;

/// All events. One topic keeps their order.
pub const STATUS: Topic = Topic("uptime.status");

/// The payload of [`STATUS`]; the key is `about`. It has no error messages, which may contain internal names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusEvent {
    /// The id of the incident or the maintenance window.
    pub about: String,
    /// The name of the monitor, or the title of the window.
    pub name: String,
    pub at_ms: i64,
    pub change: StatusChange,
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatusChange {
    Opened { monitor: String },
    Updated { monitor: String, status: UpdateStatus, text: String },
    Resolved { monitor: String },
    Planned { covers: Vec<String>, starts_at_ms: i64, ends_at_ms: i64 },
}

impl StatusEvent {
    pub(crate) fn of_incident(monitor: &Monitor, incident: &str, at_ms: i64, change: StatusChange) -> Self {
        Self { about: incident.to_owned(), name: monitor.spec.name.clone(), at_ms, change }
    }

    pub(crate) fn planned(window: &Maintenance, at_ms: i64) -> Self {
        let spec = &window.spec;
        let change = StatusChange::Planned {
            covers: spec.covers.clone(),
            starts_at_ms: spec.starts_at_ms,
            ends_at_ms: spec.ends_at_ms,
        };
        Self { about: window.id.clone(), name: spec.title.clone(), at_ms, change }
    }

    pub(crate) fn emit(&self, tx: &Transaction) -> Result<()> {
        let payload = serde_json::to_string(self);
        let payload = payload.unwrap_or_else(|error| unreachable!("an event is plain data: {error}"));
        Ok(tx.emit(STATUS, &self.about, payload)?)
    }
}
