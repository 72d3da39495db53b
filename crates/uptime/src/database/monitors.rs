//! Monitors (U8).

use std::collections::HashMap;

use hob_database::{
    Database, Isolation, Page, Query, Read, Signal, Transaction, UnixMs, column, from_row, sql,
};
use hob_database::{Keyset, PageRequest, ValueKind as ColumnKind};
use hob_units::Secret;

use crate::error::{Error, Result};
use crate::keys::MonitorId;
use crate::monitor::check::MonitorKind;
use crate::monitor::heartbeat::{lookup_part, new_token};
use crate::monitor::{Monitor, MonitorSpec};

column!(MonitorId as text);

/// Sent when monitors were added, edited or removed.
pub(crate) const CHANGED: Signal = Signal("uptime.monitors");

const BY_ID: Keyset = Keyset::ascending(&[("id", ColumnKind::Text)]);
const PAGE: u16 = PageRequest::MAX_SIZE;

struct Row {
    id: MonitorId,
    generation: u64,
    spec: String,
    token: Option<String>,
    created_at: UnixMs,
}

from_row!(Row { id, generation, spec, token, created_at });

/// The outcome of an edit.
#[derive(Debug)]
pub enum MonitorEdit {
    Edited(Box<Monitor>),
    /// The new values are the old ones.
    Unchanged(Box<Monitor>),
    NotFound,
}

impl Row {
    fn monitor(self) -> Result<Monitor> {
        let unreadable = |reason: String| Error::Unreadable(format!("monitor {}: {reason}", self.id));
        let spec: MonitorSpec =
            serde_json::from_str(&self.spec).map_err(|error| unreadable(error.to_string()))?;
        let (check, assertions) = spec.parse().map_err(|errors| unreadable(format!("{errors:?}")))?;
        Ok(Monitor {
            id: self.id,
            generation: self.generation,
            spec,
            check,
            assertions,
            token: self.token.map(Secret::from),
            created_at: self.created_at,
        })
    }
}

/// All monitors, read in pages.
pub async fn all(database: &Database) -> Result<Vec<Monitor>> {
    let mut monitors = Vec::new();
    let mut request = PageRequest::first(PAGE);
    loop {
        let select = sql("SELECT id, generation, spec, token, created_at FROM uptime_monitor WHERE TRUE");
        let Page { rows, next } = database.page(select, &BY_ID, &request).await?;
        for row in rows {
            // A monitor that cannot be read, perhaps of a later version, must not stop the others.
            match Row::monitor(row) {
                Ok(monitor) => monitors.push(monitor),
                Err(error) => tracing::error!(%error, "unreadable monitor skipped"),
            }
        }
        match next {
            Some(cursor) => request = PageRequest::first(PAGE).after(cursor),
            None => return Ok(monitors),
        }
    }
}

/// The number of monitors and the time of the last edit. A different value means that monitors have changed.
pub async fn fingerprint(on: &impl Read) -> Result<(u64, i64)> {
    Ok(on.one(sql("SELECT count(*), coalesce(max(changed_at), 0) FROM uptime_monitor")).await?)
}

pub async fn by_id(on: &impl Read, id: &MonitorId) -> Result<Option<Monitor>> {
    let select: Query<Row> =
        sql("SELECT id, generation, spec, token, created_at FROM uptime_monitor WHERE id = $1");
    on.optional(select.bind(id)).await?.map(Row::monitor).transpose()
}

/// The names of the monitors that refer to a channel by this name.
pub(crate) async fn referring_to(on: &impl Read, channel: &str) -> Result<Vec<String>> {
    // The name as JSON has it, with the characters that LIKE interprets. Others may contain the same text elsewhere.
    let text = serde_json::Value::from(channel).to_string();
    let text = text.replace('!', "!!").replace('%', "!%").replace('_', "!_");
    let select: Query<(String,)> = sql("SELECT spec FROM uptime_monitor WHERE spec LIKE $1 ESCAPE '!'");
    let mut names = Vec::new();
    for (spec,) in on.all(select.bind(format!("%{text}%"))).await? {
        // A monitor that cannot be read does not alert anyone.
        if let Ok(spec) = serde_json::from_str::<MonitorSpec>(&spec)
            && spec.channels.iter().any(|name| name == channel)
        {
            names.push(spec.name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

pub async fn by_token(on: &impl Read, token: &Secret) -> Result<Option<Monitor>> {
    let Some(start) = lookup_part(token.reveal()) else { return Ok(None) };
    let select: Query<Row> = sql("SELECT id, generation, spec, token, created_at FROM uptime_monitor
                                  WHERE token >= $1 AND token < $2 ORDER BY token");
    // Follows every hexadecimal digit.
    let end = format!("{start}g");
    for row in on.all(select.bind(start).bind(end)).await? {
        let monitor = row.monitor()?;
        // In constant time.
        if monitor.token.as_ref() == Some(token) {
            return Ok(Some(monitor));
        }
    }
    Ok(None)
}

/// Records that the job of a heartbeat called. The time never moves backwards.
pub(crate) async fn set_called(database: &Database, id: &MonitorId, at: UnixMs) -> Result<()> {
    let work = |tx: Transaction| async move {
        let update = sql("UPDATE uptime_monitor SET called_at = $2
                          WHERE id = $1 AND (called_at IS NULL OR called_at < $2)");
        tx.execute(update.bind(id).bind(at)).await
    };
    database.write_with(Isolation::ReadCommitted, work).await?;
    Ok(())
}

/// Since when each of these heartbeats waits for its job: the last call, or the last edit.
pub(crate) async fn waiting_since(on: &impl Read, ids: &[MonitorId]) -> Result<HashMap<MonitorId, UnixMs>> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let since: Query<(MonitorId, UnixMs)> =
        sql("SELECT id, CASE WHEN called_at > changed_at THEN called_at ELSE changed_at END
             FROM uptime_monitor WHERE id IN ($1...)");
    Ok(on.all(since.bind_list(ids)).await?.into_iter().collect())
}

/// Adds a monitor; `None` if the id is taken.
pub async fn add(database: &Database, id: &MonitorId, spec: &MonitorSpec) -> Result<Option<Monitor>> {
    let text = &to_json(spec);
    let token = &(spec.kind == MonitorKind::Heartbeat).then(|| new_token().reveal().to_owned());
    database
        .write(|tx| async move {
            let insert =
                sql("INSERT INTO uptime_monitor (id, generation, spec, token, created_at, changed_at)
                              VALUES ($1, $4, $2, $3, $4, $4) ON CONFLICT DO NOTHING");
            let insert = insert.bind(id).bind(text.as_str()).bind(token.clone()).bind(tx.now());
            if tx.execute(insert).await? == 0 {
                return Ok(None);
            }
            tx.signal(CHANGED);
            by_id(&tx, id).await
        })
        .await
}

/// Edits a monitor in the transaction of the caller.
pub async fn edit(tx: &Transaction, id: &MonitorId, spec: &MonitorSpec) -> Result<MonitorEdit> {
    let Some(monitor) = by_id(tx, id).await? else { return Ok(MonitorEdit::NotFound) };
    if monitor.spec == *spec {
        return Ok(MonitorEdit::Unchanged(Box::new(monitor)));
    }
    let token = match spec.kind {
        MonitorKind::Heartbeat => Some(monitor.token.unwrap_or_else(new_token).reveal().to_owned()),
        _ => None,
    };
    let update =
        sql("UPDATE uptime_monitor SET generation = generation + 1, spec = $2, token = $3, changed_at = $4
                      WHERE id = $1");
    tx.execute(update.bind(id).bind(to_json(spec)).bind(token).bind(tx.now())).await?;
    tx.signal(CHANGED);
    let edited = by_id(tx, id).await?;
    edited.map_or(Ok(MonitorEdit::NotFound), |monitor| Ok(MonitorEdit::Edited(Box::new(monitor))))
}

/// Removes a monitor with its incidents and summaries; `false` if there is none. Single results are deleted by age.
pub async fn remove(database: &Database, id: &MonitorId) -> Result<bool> {
    database
        .write(|tx| async move {
            for statement in [
                "DELETE FROM uptime_note WHERE incident_id IN (SELECT id FROM uptime_incident WHERE monitor_id = $1)",
                "DELETE FROM uptime_incident_update
                 WHERE incident_id IN (SELECT id FROM uptime_incident WHERE monitor_id = $1)",
                "DELETE FROM uptime_incident WHERE monitor_id = $1",
                "DELETE FROM uptime_summary WHERE monitor_id = $1",
            ] {
                tx.execute(sql(statement).bind(id)).await?;
            }
            tx.signal(CHANGED);
            Ok(tx.execute(sql("DELETE FROM uptime_monitor WHERE id = $1").bind(id)).await? == 1)
        })
        .await
}

fn to_json(spec: &MonitorSpec) -> String {
    serde_json::to_string(spec).unwrap_or_else(|error| unreachable!("a spec is plain data: {error}"))
}
