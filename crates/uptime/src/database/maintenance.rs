//! Maintenance windows.

use hob_database::{Database, Query, Read, Transaction, UnixMs, from_row, sql};

use crate::error::{Error, Result};
use crate::monitor::maintenance::{Maintenance, MaintenanceSpec};
use crate::status::StatusEvent;

/// How long windows that have ended stay in the list.
const KEEP_MS: i64 = 90 * 86_400_000;

struct Row {
    id: String,
    title: String,
    covers: String,
    starts_at: UnixMs,
    ends_at: UnixMs,
}

from_row!(Row { id, title, covers, starts_at, ends_at });

/// The windows that are kept, the latest first.
pub async fn all(on: &impl Read) -> Result<Vec<Maintenance>> {
    let select: Query<Row> = sql(
        "SELECT id, title, covers, starts_at, ends_at FROM uptime_maintenance ORDER BY starts_at DESC LIMIT 1000",
    );
    on.all(select).await?.into_iter().map(Row::maintenance).collect()
}

/// Adds a window, together with the event for subscribers, and deletes those that ended long ago.
pub async fn add(database: &Database, spec: &MaintenanceSpec) -> Result<Maintenance> {
    let id = format!("w{:012x}", rand::random::<u64>() >> 16);
    let window = &Maintenance { id, spec: spec.clone() };
    let covers = &serde_json::to_string(&spec.covers).unwrap_or_default();
    let add = |tx: Transaction| async move {
        let old = sql("DELETE FROM uptime_maintenance WHERE ends_at < $1").bind(UnixMs(tx.now().0 - KEEP_MS));
        tx.execute(old).await?;
        let insert = sql("INSERT INTO uptime_maintenance (id, title, covers, starts_at, ends_at)
                          VALUES ($1, $2, $3, $4, $5)");
        let insert = insert.bind(window.id.as_str()).bind(spec.title.as_str()).bind(covers.as_str());
        tx.execute(insert.bind(spec.starts_at_ms).bind(spec.ends_at_ms)).await?;
        if spec.ends_at_ms > tx.now().0 {
            StatusEvent::planned(window, tx.now().0).emit(&tx)?;
        }
        Ok::<_, Error>(())
    };
    database.write(add).await?;
    Ok(window.clone())
}

/// Removes a window; `false` if there is none with this id.
pub async fn remove(database: &Database, id: &str) -> Result<bool> {
    Ok(database.execute(sql("DELETE FROM uptime_maintenance WHERE id = $1").bind(id)).await? == 1)
}

impl Row {
    fn maintenance(self) -> Result<Maintenance> {
        let unreadable =
            |error| Error::Unreadable(format!("maintenance window {}: covers: {error}", self.id));
        let covers = serde_json::from_str(&self.covers).map_err(unreadable)?;
        let (starts_at_ms, ends_at_ms) = (self.starts_at.0, self.ends_at.0);
        let spec = MaintenanceSpec { title: self.title, covers, starts_at_ms, ends_at_ms };
        Ok(Maintenance { id: self.id, spec })
    }
}
