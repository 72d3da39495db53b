//! Updates: what users write about an incident for the readers of status pages.

use hob_database::{Database, Transaction, UnixMs};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::database::{incidents, updates};
use crate::error::Result;
use crate::monitor::Monitor;
use crate::status::{StatusChange, StatusEvent};

/// The most updates of an incident.
pub const MAX_UPDATES: u64 = 100;
pub const MAX_UPDATE_BYTES: usize = 4000;

/// An update that a user has published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    pub written_at: UnixMs,
    pub author: String,
    pub status: UpdateStatus,
    pub text: String,
}

/// How far the work on an incident has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UpdateStatus {
    /// The cause is not known yet.
    Investigating,
    /// The cause is known.
    Identified,
    /// It should work again, and is watched.
    Monitoring,
    Resolved,
}

hob_units::names!(UpdateStatus {
    Investigating = "investigating",
    Identified = "identified",
    Monitoring = "monitoring",
    Resolved = "resolved",
});

/// Result of [`publish`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishOutcome {
    Published(Update),
    NotFound,
    /// The incident has [`MAX_UPDATES`] updates.
    LimitReached,
}

/// Publishes an update, together with the event for subscribers. `monitor` is that of the incident; `None` if it was deleted.
pub async fn publish(
    database: &Database,
    monitor: Option<&Monitor>,
    incident: &str,
    author: &str,
    (status, text): (UpdateStatus, &str),
) -> Result<PublishOutcome> {
    database
        .write(|tx: Transaction| async move {
            if incidents::by_id(&tx, incident).await?.is_none() {
                return Ok(PublishOutcome::NotFound);
            }
            if updates::count(&tx, incident).await? >= MAX_UPDATES {
                return Ok(PublishOutcome::LimitReached);
            }
            let update =
                Update { written_at: tx.now(), author: author.to_owned(), status, text: text.to_owned() };
            updates::insert(&tx, incident, &update).await?;
            if let Some(monitor) = monitor {
                let change =
                    StatusChange::Updated { monitor: monitor.id.to_string(), status, text: text.to_owned() };
                StatusEvent::of_incident(monitor, incident, tx.now().0, change).emit(&tx)?;
            }
            Ok(PublishOutcome::Published(update))
        })
        .await
}
