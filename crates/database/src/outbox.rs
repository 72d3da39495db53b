//! A transactional outbox: an event is published if and only if the change that emitted it was committed.
//!
//! [`Transaction::emit`] writes an event in the transaction that makes the change. A [`Relay`], active on one node at
//! a time, numbers the events of each topic 1, 2, 3, … without gaps, and publishes them. A client catches up with
//! [`after`] from the last number it has seen. A [`Consumer`], which must not miss events, stores its position in the
//! database.
//!
//! # The order
//!
//! If a transaction saw the change of another transaction, or waited for it, the events of the first get larger numbers
//! than those of the other. The order of two independent transactions is arbitrary, but it is the same for all readers
//! and never changes.
//!
//! Proof: an event takes its id from a sequence as the last step of its transaction. All changes that the transaction
//! saw were committed before this step, and the transactions of these changes took their ids before they committed. So
//! ids never contradict causal order. The relay reads the committed events in one statement and numbers them by id. If
//! it sees an event, it also sees all events that precede it causally: they were committed earlier. A transaction that
//! took an id early and commits late gets its number late. No other transaction can have seen its change before, so
//! this number does not contradict causal order either. (If the writing transactions assigned the numbers, they would
//! have to wait for each other to avoid gaps. Ids alone have gaps and become visible out of order.)

mod consumer;
mod relay;
mod retention;

pub use consumer::{Consumer, Start};
pub use relay::{Relay, RelayRound};
pub use retention::{Retention, RetentionLimit};

use crate::address::Dialect;
use crate::query::Statement;
use crate::query::read::sealed::Source as _;
use crate::{Database, Error, Query, Read, Signal, Transaction, UnixMs, Wakeups, from_row, sql};

/// The name of a stream of events, such as `chat.message.created`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Topic(pub &'static str);

/// Sent when events were emitted. The relay waits for it.
pub(crate) const EMITTED: Signal = Signal("outbox");

/// A numbered event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub topic: String,
    /// The position in the topic: 1, 2, 3, … An event that is published twice keeps its number.
    pub number: u64,
    /// The id of the entity that changed.
    pub key: String,
    pub payload: String,
    pub written_at: UnixMs,
}

/// The events after a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replay {
    /// The next events in order, without gaps. Empty if there are none yet.
    Events(Vec<Event>),
    /// The events directly after the given number were deleted, or the number was never assigned. The reader must read
    /// the current state from the tables, and then continue after `newest`.
    Missed { oldest: u64, newest: u64 },
}

/// The work that the relay still has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Events without a number. Counted up to 10,000.
    pub unnumbered: u64,
    /// Numbered events that were not published.
    pub unpublished: u64,
}

/// An event that is not written yet.
#[derive(Debug)]
pub(crate) struct NewEvent {
    topic: Topic,
    key: String,
    payload: String,
}

const MAX_NAME_BYTES: usize = 512;
const MAX_PAYLOAD_BYTES: usize = 256 * 1024;

from_row!(Event { topic, number, key, payload, written_at });

impl NewEvent {
    pub(crate) fn new(topic: Topic, key: String, payload: String) -> Result<Self, Error> {
        if topic.0.len().max(key.len()) > MAX_NAME_BYTES || payload.len() > MAX_PAYLOAD_BYTES {
            return Err(Error::invalid_value(format!(
                "event of topic {} is too large: at most {MAX_NAME_BYTES} bytes for topic and key, {MAX_PAYLOAD_BYTES} for the payload",
                topic.0
            )));
        }
        Ok(Self { topic, key, payload })
    }
}

/// Writes the events of a transaction, right before its commit. Returns the last statement if it can run together with the
/// commit.
pub(crate) async fn write(tx: &Transaction, events: Vec<NewEvent>) -> Result<Option<Statement>, Error> {
    let now = tx.now();
    let rows = events.into_iter().map(|event| (event.topic.0, event.key, event.payload, now));
    let head = "INSERT INTO hob_outbox_new (topic, key, payload, written_at)";
    match tx.insert_full(head, rows, "").await? {
        (_, Some(last)) if tx.dialect() == Dialect::Postgres => tx.run(last).await.map(|_| None),
        (_, last) => Ok(last),
    }
}

/// Reads at most `limit` events of a topic after `number`; 0 is before the first.
pub async fn after(database: &impl Read, topic: Topic, number: u64, limit: u16) -> Result<Replay, Error> {
    let events = database.all(numbered_after(topic.0, number, limit)).await?;
    replay(database, topic, number, events).await
}

/// `events` has no gap if no event after `number` has been deleted in the meantime.
async fn replay(
    database: &impl Read,
    topic: Topic,
    number: u64,
    events: Vec<Event>,
) -> Result<Replay, Error> {
    let (newest, forgotten) = bounds(database, topic).await?;
    Ok(if (forgotten..=newest).contains(&number) {
        Replay::Events(events)
    } else {
        Replay::Missed { oldest: forgotten + 1, newest }
    })
}

/// The last number that was assigned, and the last one that was deleted.
async fn bounds(database: &impl Read, topic: Topic) -> Result<(u64, u64), Error> {
    let bounds = sql("SELECT numbered, forgotten FROM hob_outbox_topic WHERE topic = $1");
    Ok(database.optional(bounds.bind(topic.0)).await?.unwrap_or_default())
}

/// Waits until the relay of this process has numbered events of a topic, so that a [`Consumer`] can read them. Other nodes
/// get no signal: their consumers are woken by what the relay publishes.
pub fn numbered(database: &Database, topic: Topic) -> Wakeups {
    database.wakeups_named(&numbered_name(topic.0))
}

fn numbered_name(topic: &str) -> String {
    format!("outbox {topic}")
}

/// How far the active relay is behind, on any node.
pub async fn backlog(database: &impl Read) -> Result<Backlog, Error> {
    let backlog: Query<(u64, u64)> =
        sql("SELECT (SELECT count(*) FROM (SELECT 1 FROM hob_outbox_new LIMIT 10000) AS new),
                (SELECT CAST(coalesce(sum(numbered - published), 0) AS BIGINT) FROM hob_outbox_topic)");
    let (unnumbered, unpublished) = database.one(backlog).await?;
    Ok(Backlog { unnumbered, unpublished })
}

fn numbered_after(topic: &str, number: u64, limit: u16) -> Query<Event> {
    let query = sql("SELECT topic, number, key, payload, written_at FROM hob_outbox_event
                     WHERE topic = $1 AND number > $2 ORDER BY number LIMIT $3");
    query.bind(topic).bind(number).bind(limit)
}
