//! How long events are kept: long enough for everybody who reads them, but never without limit.

use std::ops::Range;
use std::time::Duration;

use crate::connection::Isolation;
use crate::{Database, Error, Query, Read as _, Snapshot, Transaction, from_row, sql};

/// How long the events of a topic are kept.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Events that were published and that every consumer has acknowledged.
    pub read: Limits,
    /// Events that somebody still has to read.
    pub unread: Limits,
}

/// What passes either limit is forgotten.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub age: Duration,
    pub count: u64,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: Duration = Duration::from_hours(24);
        Self { read: Limits { age: DAY, count: 100_000 }, unread: Limits { age: DAY * 7, count: 1_000_000 } }
    }
}

/// As many as one transaction forgets, so that nobody waits long for it.
const BATCH: u64 = 5_000;

struct State {
    topic: String,
    numbered: u64,
    published: u64,
    forgotten: u64,
    /// How far the slowest consumer is.
    acked: Option<u64>,
}

from_row!(State { topic, numbered, published, forgotten, acked });

/// Whether anything is left that has passed its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trimmed {
    All,
    Partly,
}

/// Forgets what has passed its limits, a batch of each topic at most.
pub(super) async fn trim(database: &Database, retention: Retention) -> Result<Trimmed, Error> {
    let plan = database.read(|snapshot| async move { plan(&snapshot, retention).await });
    let mut trimmed = Trimmed::All;
    for (topic, range) in plan.await? {
        let (topic, until) = (topic.as_str(), range.end.min(range.start + BATCH));
        if range.is_empty() {
            continue;
        }
        let work = |tx| async move { forget(&tx, topic, until).await };
        database.write_with(Isolation::Committed, work).await?;
        if until < range.end {
            trimmed = Trimmed::Partly;
        }
    }
    Ok(trimmed)
}

/// Which events of each topic are to be forgotten: those after the range's start, up to its end.
async fn plan(snapshot: &Snapshot, retention: Retention) -> Result<Vec<(String, Range<u64>)>, Error> {
    let states: Query<State> = sql("SELECT t.topic, numbered, published, forgotten, min(position) AS acked
         FROM hob_outbox_topic t LEFT JOIN hob_outbox_consumer c ON c.topic = t.topic
         GROUP BY t.topic, numbered, published, forgotten");
    let mut plan = Vec::new();
    for state in snapshot.all(states).await? {
        let everybody_read = state.acked.unwrap_or(u64::MAX).min(state.published);
        let read = past(snapshot, &state, retention.read).await?.min(everybody_read);
        let unread = past(snapshot, &state, retention.unread).await?;
        plan.push((state.topic, state.forgotten..read.max(unread)));
    }
    Ok(plan)
}

/// The last event that passes the limits.
async fn past(snapshot: &Snapshot, state: &State, limits: Limits) -> Result<u64, Error> {
    // Numbers follow times closely enough, and looking from the old end costs no more than what is found old.
    let oldest_young: Query<(u64,)> = sql("SELECT number FROM hob_outbox_event
         WHERE topic = $1 AND written_at >= $2 ORDER BY number LIMIT 1");
    let oldest_young = oldest_young.bind(&state.topic).bind(snapshot.now().minus(limits.age));
    let oldest_young = snapshot.optional(oldest_young).await?;
    let by_age = oldest_young.map_or(state.numbered, |(number,)| number - 1);
    Ok(by_age.max(state.numbered.saturating_sub(limits.count)))
}

async fn forget(tx: &Transaction, topic: &str, until: u64) -> Result<(), Error> {
    let mark = sql("UPDATE hob_outbox_topic SET forgotten = $2 WHERE topic = $1 AND forgotten < $2");
    tx.execute(mark.bind(topic).bind(until)).await?;
    let delete = sql("DELETE FROM hob_outbox_event WHERE topic = $1 AND number <= $2");
    tx.execute(delete.bind(topic).bind(until)).await.map(drop)
}
