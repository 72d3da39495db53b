//! Incidents and their notes.

use std::collections::HashSet;

use hob_database::{
    Database, Keyset, Page, PageRequest, Query, Read, Transaction, UnixMs, ValueKind, column, from_row, sql,
};

use crate::error::Result;
use crate::incident::{Alerting, Filter, Incident, Note, Resolution, unix_ms};
use crate::keys::MonitorId;
use crate::schedule::record::PendingChange;

const NEWEST_FIRST: Keyset = Keyset::descending(&[("opened_at", ValueKind::Int), ("id", ValueKind::Text)]);

column!(Resolution as text);
from_row!(Incident {
    id,
    monitor_id,
    opened_fence,
    opened_at,
    confirmed_at,
    class,
    message,
    failures,
    maintenance,
    told_at,
    reminders,
    reminded_at,
    acknowledged_at,
    acknowledged_by,
    resolved_at,
    resolution,
});
from_row!(Note { written_at, author, text });

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, monitor_id, opened_fence, opened_at, confirmed_at, class, message, failures, maintenance, told_at,
                    reminders, reminded_at, acknowledged_at, acknowledged_by, resolved_at, resolution
             FROM uptime_incident ",
            $rest
        )
    };
}

pub async fn by_id(on: &impl Read, id: &str) -> Result<Option<Incident>> {
    Ok(on.optional(sql(select!("WHERE id = $1")).bind(id)).await?)
}

/// The open incident of a monitor.
pub(crate) async fn open_for(on: &impl Read, monitor: &MonitorId) -> Result<Option<Incident>> {
    Ok(on.optional(sql(select!("WHERE monitor_id = $1 AND resolved_at IS NULL")).bind(monitor)).await?)
}

/// Every open incident; a monitor has at most one.
pub async fn all_open(on: &impl Read) -> Result<Vec<Incident>> {
    let mut all = Vec::new();
    let mut request = PageRequest::first(PageRequest::MAX_SIZE);
    loop {
        let page = on.page(sql(select!("WHERE resolved_at IS NULL")), &NEWEST_FIRST, &request).await?;
        all.extend(page.rows);
        match page.next {
            Some(cursor) => request = request.after(cursor),
            None => return Ok(all),
        }
    }
}

/// Which of these monitors have an open incident.
pub(crate) async fn open_among(on: &impl Read, monitors: &[MonitorId]) -> Result<HashSet<MonitorId>> {
    let query: Query<(MonitorId,)> =
        sql("SELECT monitor_id FROM uptime_incident WHERE resolved_at IS NULL AND monitor_id IN ($1...)");
    Ok(on.all(query.bind_list(monitors)).await?.into_iter().map(|(id,)| id).collect())
}

/// A page of incidents, the newest first.
pub async fn page(on: &impl Read, filter: &Filter, request: &PageRequest) -> Result<Page<Incident>> {
    let query: Query<Incident> = match filter {
        Filter::All => sql(select!("WHERE TRUE")),
        Filter::Open => sql(select!("WHERE resolved_at IS NULL")),
        Filter::Of(monitor) => sql(select!("WHERE monitor_id = $1")).bind(monitor),
    };
    Ok(on.page(query, &NEWEST_FIRST, request).await?)
}

/// The newest incidents of some monitors that were open at `from` or later, at most 5,000.
pub(crate) async fn since(on: &impl Read, monitors: &[MonitorId], from: UnixMs) -> Result<Vec<Incident>> {
    let query = sql(select!(
        "WHERE (resolved_at IS NULL OR resolved_at > $1) AND monitor_id IN ($2...) ORDER BY opened_at DESC LIMIT 5000"
    ));
    Ok(on.all(query.bind(from).bind_list(monitors)).await?)
}

/// Inserts an incident; `false` if the monitor has an open one, or had one that this change opened.
pub(crate) async fn insert(
    tx: &Transaction,
    id: &str,
    change: &PendingChange,
    alerting: Alerting,
) -> Result<bool> {
    let insert = sql(
        "INSERT INTO uptime_incident (id, monitor_id, opened_fence, opened_at, confirmed_at, class, message,
                          failures, maintenance, told_at, reminders)
                      VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0) ON CONFLICT DO NOTHING",
    );
    let insert = insert.bind(id).bind(&change.id).bind(change.fence.get());
    let insert = insert.bind(unix_ms(change.first_failure_ms)).bind(unix_ms(change.at_ms));
    let insert = insert.bind(change.class.as_deref().unwrap_or("unknown")).bind(change.message.as_str());
    let insert = insert.bind(change.failures).bind(alerting == Alerting::Suppressed);
    let told_at = (alerting == Alerting::Enabled).then(|| tx.now());
    Ok(tx.execute(insert.bind(told_at)).await? == 1)
}

pub(crate) async fn resolve(
    tx: &Transaction,
    id: &str,
    at: UnixMs,
    fence: Option<u64>,
    resolution: Resolution,
) -> Result<()> {
    let update = sql(
        "UPDATE uptime_incident SET resolved_at = $2, resolved_fence = $3, resolution = $4 WHERE id = $1",
    );
    tx.execute(update.bind(id).bind(at).bind(fence).bind(resolution)).await?;
    Ok(())
}

/// Marks an incident as alerted; from then on it counts as downtime.
pub(crate) async fn mark_alerted(tx: &Transaction, id: &str) -> Result<()> {
    let update = sql("UPDATE uptime_incident SET told_at = $2, maintenance = $3 WHERE id = $1");
    tx.execute(update.bind(id).bind(tx.now()).bind(false)).await?;
    Ok(())
}

pub(crate) async fn mark_reminded(tx: &Transaction, id: &str) -> Result<()> {
    let update = sql("UPDATE uptime_incident SET reminded_at = $2, reminders = reminders + 1 WHERE id = $1");
    tx.execute(update.bind(id).bind(tx.now())).await?;
    Ok(())
}

/// Acknowledges an incident; `false` if it was acknowledged or resolved before, or does not exist.
pub(crate) async fn acknowledge(tx: &Transaction, id: &str, who: &str) -> Result<bool> {
    let update = sql("UPDATE uptime_incident SET acknowledged_at = $2, acknowledged_by = $3
                      WHERE id = $1 AND acknowledged_at IS NULL AND resolved_at IS NULL");
    Ok(tx.execute(update.bind(id).bind(tx.now()).bind(who)).await? == 1)
}

/// Deletes incidents that were resolved before this time, their notes and their updates.
pub(crate) async fn delete_resolved_before(database: &Database, before: UnixMs) -> Result<()> {
    let notes = sql("DELETE FROM uptime_note WHERE incident_id IN
                     (SELECT id FROM uptime_incident WHERE resolved_at < $1)");
    database.execute(notes.bind(before)).await?;
    let updates = sql("DELETE FROM uptime_incident_update WHERE incident_id IN
                       (SELECT id FROM uptime_incident WHERE resolved_at < $1)");
    database.execute(updates.bind(before)).await?;
    database.execute(sql("DELETE FROM uptime_incident WHERE resolved_at < $1").bind(before)).await?;
    Ok(())
}

/// The notes of an incident, the oldest first.
pub async fn notes(on: &impl Read, incident: &str) -> Result<Vec<Note>> {
    let query = sql(
        "SELECT written_at, author, text FROM uptime_note WHERE incident_id = $1 ORDER BY written_at, id",
    );
    Ok(on.all(query.bind(incident)).await?)
}

pub(crate) async fn count_notes(on: &impl Read, incident: &str) -> Result<u64> {
    let (count,): (u64,) =
        on.one(sql("SELECT count(*) FROM uptime_note WHERE incident_id = $1").bind(incident)).await?;
    Ok(count)
}

pub(crate) async fn insert_note(tx: &Transaction, incident: &str, note: &Note) -> Result<()> {
    let id = format!("n{:012x}", rand::random::<u64>() >> 16);
    let insert = sql("INSERT INTO uptime_note (id, incident_id, written_at, author, text)
                      VALUES ($1, $2, $3, $4, $5)");
    let insert = insert.bind(id).bind(incident).bind(note.written_at);
    tx.execute(insert.bind(note.author.as_str()).bind(note.text.as_str())).await?;
    Ok(())
}
