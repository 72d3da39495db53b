//! Retention: how long events are kept.

use std::ops::Range;
use std::time::Duration;

use crate::connection::Isolation;
use crate::{Database, Error, Query, Read as _, Snapshot, Transaction, from_row, sql};

/// How long the events of a topic are kept.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Limits for events that were published and that every consumer has acknowledged.
    pub read: RetentionLimit,
    /// Limits for events that are unpublished, or that a consumer has not acknowledged.
    pub unread: RetentionLimit,
}

/// Events beyond either limit are deleted.
#[derive(Clone, Copy, Debug)]
pub struct RetentionLimit {
    pub age: Duration,
    pub count: u64,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: Duration = Duration::from_hours(24);
        Self {
            read: RetentionLimit { age: DAY, count: 100_000 },
            unread: RetentionLimit { age: DAY * 7, count: 1_000_000 },
        }
    }
}

/// Maximum number of events that one transaction deletes, so that it stays short.
const BATCH: u64 = 5_000;

struct TopicState {
    topic: String,
    numbered: u64,
    published: u64,
    forgotten: u64,
    /// The position of the slowest consumer.
    acked: Option<u64>,
}

from_row!(TopicState { topic, numbered, published, forgotten, acked });

/// Whether all expired events are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trimmed {
    All,
    Partly,
}

/// Deletes expired events, at most one batch per topic.
pub(super) async fn trim(database: &Database, retention: Retention) -> Result<Trimmed, Error> {
    let plan = database.read(|snapshot| async move { plan(&snapshot, retention).await });
    let mut trimmed = Trimmed::All;
    for (topic, range) in plan.await? {
        let (topic, until) = (topic.as_str(), range.end.min(range.start + BATCH));
        if range.is_empty() {
            continue;
        }
        let work = |tx| async move { delete(&tx, topic, until).await };
        database.write_with(Isolation::ReadCommitted, work).await?;
        if until < range.end {
            trimmed = Trimmed::Partly;
        }
    }
    Ok(trimmed)
}

/// Which events of each topic to delete: those after the range's start, up to and including its end.
async fn plan(snapshot: &Snapshot, retention: Retention) -> Result<Vec<(String, Range<u64>)>, Error> {
    let states: Query<TopicState> =
        sql("SELECT t.topic, numbered, published, forgotten, min(position) AS acked
         FROM hob_outbox_topic t LEFT JOIN hob_outbox_consumer c ON c.topic = t.topic
         GROUP BY t.topic, numbered, published, forgotten");
    let mut plan = Vec::new();
    for state in snapshot.all(states).await? {
        let read_by_all = state.acked.unwrap_or(u64::MAX).min(state.published);
        let read = last_expired(snapshot, &state, retention.read).await?.min(read_by_all);
        let unread = last_expired(snapshot, &state, retention.unread).await?;
        plan.push((state.topic, state.forgotten..read.max(unread)));
    }
    Ok(plan)
}

/// The number of the last event beyond the limits.
async fn last_expired(snapshot: &Snapshot, state: &TopicState, limits: RetentionLimit) -> Result<u64, Error> {
    // The order of numbers is close enough to the order of times. A scan from the oldest event stops at the first event
    // that must be kept.
    let oldest_kept: Query<(u64,)> = sql("SELECT number FROM hob_outbox_event
         WHERE topic = $1 AND written_at >= $2 ORDER BY number LIMIT 1");
    let oldest_kept = oldest_kept.bind(&state.topic).bind(snapshot.now().minus(limits.age));
    let oldest_kept = snapshot.optional(oldest_kept).await?;
    let by_age = oldest_kept.map_or(state.numbered, |(number,)| number - 1);
    Ok(by_age.max(state.numbered.saturating_sub(limits.count)))
}

async fn delete(tx: &Transaction, topic: &str, until: u64) -> Result<(), Error> {
    let mark = sql("UPDATE hob_outbox_topic SET forgotten = $2 WHERE topic = $1 AND forgotten < $2");
    tx.execute(mark.bind(topic).bind(until)).await?;
    let delete = sql("DELETE FROM hob_outbox_event WHERE topic = $1 AND number <= $2");
    tx.execute(delete.bind(topic).bind(until)).await.map(drop)
}
