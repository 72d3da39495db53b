//! Updates of incidents.

use std::collections::HashMap;

use hob_database::{Query, Read, Transaction, UnixMs, column, from_row, sql};

use crate::error::Result;
use crate::incident::{Update, UpdateStatus};

column!(UpdateStatus as text);

struct Row {
    incident_id: String,
    written_at: UnixMs,
    author: String,
    status: UpdateStatus,
    text: String,
}

from_row!(Row { incident_id, written_at, author, status, text });

/// The updates of some incidents, the newest first.
pub(crate) async fn of<'a>(
    on: &impl Read,
    incidents: impl Iterator<Item = &'a str>,
) -> Result<HashMap<String, Vec<Update>>> {
    let query: Query<Row> =
        sql("SELECT incident_id, written_at, author, status, text FROM uptime_incident_update
                                 WHERE incident_id IN ($1...) ORDER BY written_at DESC, id DESC");
    let mut all: HashMap<String, Vec<Update>> = HashMap::new();
    for Row { incident_id, written_at, author, status, text } in on.all(query.bind_list(incidents)).await? {
        all.entry(incident_id).or_default().push(Update { written_at, author, status, text });
    }
    Ok(all)
}

/// The updates of one incident, the newest first.
pub(crate) async fn of_one(on: &impl Read, incident: &str) -> Result<Vec<Update>> {
    Ok(of(on, std::iter::once(incident)).await?.remove(incident).unwrap_or_default())
}

pub(crate) async fn count(on: &impl Read, incident: &str) -> Result<u64> {
    let count = sql("SELECT count(*) FROM uptime_incident_update WHERE incident_id = $1");
    let (count,): (u64,) = on.one(count.bind(incident)).await?;
    Ok(count)
}

pub(crate) async fn insert(tx: &Transaction, incident: &str, update: &Update) -> Result<()> {
    let id = format!("u{:012x}", rand::random::<u64>() >> 16);
    let insert = sql("INSERT INTO uptime_incident_update (id, incident_id, written_at, author, status, text)
                      VALUES ($1, $2, $3, $4, $5, $6)");
    let insert = insert.bind(id).bind(incident).bind(update.written_at).bind(update.author.as_str());
    tx.execute(insert.bind(update.status).bind(update.text.as_str())).await?;
    Ok(())
}
