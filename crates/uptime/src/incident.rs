//! Incidents in the database (U3 U5 U6 U8): opened, told, acknowledged, annotated, resolved. Each change is idempotent
//! on the monitor and the fence of the check that found it, and is written together with the event that alerts
//! follow from.

pub mod alert;
mod event;
mod table;

use hob_database::{Database, Read, Transaction, UnixMs, sql};

pub use event::{INCIDENTS, IncidentEvent, What};
pub use table::{Filter, Incident, Note, Resolution, by_id, newest, notes, open, overlapping};

use crate::error::Result;
use crate::keys::MonitorId;
use crate::monitor::Monitor;
use crate::schedule::record::{Told, Unsettled};
use crate::schedule::state::Change;
use table::open_of;

/// Whether a failure is news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    Yes,
    /// A maintenance window covers it.
    Maintenance,
}

/// What became of a wish to acknowledge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acknowledged {
    Acknowledged(Box<Incident>),
    /// It was acknowledged or resolved before, and stays as it is.
    Already(Box<Incident>),
    Unknown,
}

/// Brings a change into the database, and says whether somebody is told of the incident. Done twice, it is done once.
pub async fn settle(database: &Database, monitor: &Monitor, change: &Unsettled, news: News) -> Result<Told> {
    database
        .write(|tx| async move {
            match change.change {
                Change::Opened => open_incident(&tx, monitor, change, news).await,
                Change::Resolved => {
                    let at = unix_ms(change.at_ms);
                    let fence = Some(change.fence.get());
                    resolve(&tx, monitor, at, Resolution::Recovered, fence).await?;
                    Ok(Told::Yes)
                }
            }
        })
        .await
}

async fn open_incident(tx: &Transaction, monitor: &Monitor, change: &Unsettled, news: News) -> Result<Told> {
    let id = format!("i{:012x}", rand::random::<u64>() >> 16);
    let insert = sql(
        "INSERT INTO uptime_incident (id, monitor_id, opened_fence, opened_at, confirmed_at, class, message,
                          failures, maintenance, told_at, reminders)
                      VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0) ON CONFLICT DO NOTHING",
    );
    let insert = insert.bind(id.as_str()).bind(&monitor.id).bind(change.fence.get());
    let insert = insert.bind(unix_ms(change.first_failure_ms)).bind(unix_ms(change.at_ms));
    let insert = insert.bind(change.class.as_deref().unwrap_or("unknown")).bind(change.message.as_str());
    let insert = insert.bind(change.failures).bind(news == News::Maintenance);
    let told_at = (news == News::Yes).then(|| tx.now());
    if tx.execute(insert.bind(told_at)).await? == 0 {
        let open = open_of(tx, &monitor.id).await?;
        return Ok(if open.is_some_and(|open| open.told_at.is_some()) { Told::Yes } else { Told::NotYet });
    }
    if news == News::Maintenance {
        return Ok(Told::NotYet);
    }
    let Some(incident) = open_of(tx, &monitor.id).await? else { return Ok(Told::NotYet) };
    IncidentEvent::opened(monitor, &incident).emit(tx)?;
    Ok(Told::Yes)
}

/// Ends the open incident of a monitor, if there is one that the check with this fence can have ended.
pub async fn resolve(
    tx: &Transaction,
    monitor: &Monitor,
    at: UnixMs,
    resolution: Resolution,
    fence: Option<u64>,
) -> Result<()> {
    let Some(open) = open_of(tx, &monitor.id).await? else { return Ok(()) };
    if fence.is_some_and(|fence| fence <= open.opened_fence) {
        return Ok(());
    }
    let at = at.max(open.opened_at);
    let update = sql(
        "UPDATE uptime_incident SET resolved_at = $2, resolved_fence = $3, resolution = $4 WHERE id = $1",
    );
    tx.execute(update.bind(open.id.as_str()).bind(at).bind(fence).bind(resolution)).await?;
    if open.told_at.is_some() {
        IncidentEvent::resolved(monitor, &open, at, resolution).emit(tx)?;
    }
    Ok(())
}

/// Tells of open incidents whose maintenance window is over, and again of those that go on. Answers with the ids of
/// those that somebody was told of for the first time.
pub async fn remind(
    database: &Database,
    monitor: &Monitor,
    incident: &Incident,
    news: News,
) -> Result<Option<MonitorId>> {
    if news == News::Maintenance || incident.acknowledged_at.is_some() {
        return Ok(None);
    }
    database
        .write(|tx| async move {
            let Some(open) = open_of(&tx, &monitor.id).await?.filter(|open| open.id == incident.id) else {
                return Ok(None);
            };
            let Some(told_at) = open.told_at else {
                let update = sql("UPDATE uptime_incident SET told_at = $2, maintenance = $3 WHERE id = $1");
                tx.execute(update.bind(open.id.as_str()).bind(tx.now()).bind(false)).await?;
                IncidentEvent::opened(monitor, &open).emit(&tx)?;
                return Ok(Some(monitor.id.clone()));
            };
            let last = open.reminded_at.unwrap_or(told_at);
            let every_ms = i64::from(monitor.spec.remind_s) * 1000;
            if every_ms == 0 || tx.now().0 < last.0 + every_ms {
                return Ok(None);
            }
            let update =
                sql("UPDATE uptime_incident SET reminded_at = $2, reminders = reminders + 1 WHERE id = $1");
            tx.execute(update.bind(open.id.as_str()).bind(tx.now())).await?;
            IncidentEvent::reminded(monitor, &open, tx.now()).emit(&tx)?;
            Ok(None)
        })
        .await
}

/// Somebody takes care: no more reminders.
pub async fn acknowledge(database: &Database, id: &str, who: &str) -> Result<Acknowledged> {
    database
        .write(|tx| async move {
            let update = sql("UPDATE uptime_incident SET acknowledged_at = $2, acknowledged_by = $3
                              WHERE id = $1 AND acknowledged_at IS NULL AND resolved_at IS NULL");
            let changed = tx.execute(update.bind(id).bind(tx.now()).bind(who)).await?;
            Ok(match by_id(&tx, id).await? {
                None => Acknowledged::Unknown,
                Some(incident) if changed == 1 => Acknowledged::Acknowledged(Box::new(incident)),
                Some(incident) => Acknowledged::Already(Box::new(incident)),
            })
        })
        .await
}

/// Most notes of an incident, and most bytes of one.
pub const MOST_NOTES: u64 = 100;
pub const LONGEST_NOTE: usize = 4000;

/// Adds a note; `None` if there is no such incident, or it has too many.
pub async fn annotate(database: &Database, id: &str, author: &str, text: &str) -> Result<Option<Note>> {
    let note_id = &format!("n{:012x}", rand::random::<u64>() >> 16);
    database
        .write(|tx| async move {
            let notes = sql("SELECT count(*) FROM uptime_note WHERE incident_id = $1").bind(id);
            let (count,): (u64,) = tx.one(notes).await?;
            if by_id(&tx, id).await?.is_none() || count >= MOST_NOTES {
                return Ok(None);
            }
            let insert = sql("INSERT INTO uptime_note (id, incident_id, written_at, author, text)
                              VALUES ($1, $2, $3, $4, $5)");
            let insert = insert.bind(note_id.as_str()).bind(id).bind(tx.now()).bind(author).bind(text);
            tx.execute(insert).await?;
            Ok(Some(Note { written_at: tx.now(), author: author.to_owned(), text: text.to_owned() }))
        })
        .await
}

pub(crate) fn unix_ms(ms: u64) -> UnixMs {
    UnixMs(i64::try_from(ms).unwrap_or(i64::MAX))
}
