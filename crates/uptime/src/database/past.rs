//! History that the demo writes at once.

use hob_database::{Error, Transaction, UnixMs, sql};

use crate::error::Result;
use crate::incident::Resolution;
use crate::keys::MonitorId;

/// A resolved incident.
pub(crate) struct PastIncident<'a> {
    pub(crate) id: &'a str,
    pub(crate) monitor: &'a MonitorId,
    pub(crate) opened_at: UnixMs,
    pub(crate) resolved_at: UnixMs,
    pub(crate) class: &'a str,
    pub(crate) message: &'a str,
    pub(crate) failures: u32,
    pub(crate) maintenance: bool,
    /// Who acknowledged it, and when.
    pub(crate) acknowledged: Option<(&'a str, UnixMs)>,
}

pub(crate) async fn insert_incident(tx: &Transaction, past: &PastIncident<'_>) -> Result<()> {
    let insert = sql(
        "INSERT INTO uptime_incident (id, monitor_id, opened_fence, opened_at, confirmed_at, class, message, failures,
             maintenance, told_at, reminders, acknowledged_at, acknowledged_by, resolved_fence, resolved_at, resolution)
         VALUES ($1, $2, 0, $3, $3, $4, $5, $6, $7, $3, 0, $8, $9, 0, $10, $11) ON CONFLICT DO NOTHING",
    );
    let (by, at) = past.acknowledged.unzip();
    let insert = insert.bind(past.id).bind(past.monitor).bind(past.opened_at).bind(past.class);
    let insert = insert.bind(past.message).bind(past.failures).bind(past.maintenance).bind(at).bind(by);
    tx.execute(insert.bind(past.resolved_at).bind(Resolution::Recovered)).await?;
    Ok(())
}

/// Lets a monitor exist since an earlier time.
pub(crate) async fn set_created(tx: &Transaction, monitor: &MonitorId, at: UnixMs) -> Result<(), Error> {
    let update = sql("UPDATE uptime_monitor SET created_at = $2 WHERE id = $1");
    tx.execute(update.bind(monitor).bind(at)).await?;
    Ok(())
}
