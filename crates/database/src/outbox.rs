//! Events that are told as surely as the change that made them is kept.
//!
//! [`Transaction::emit`] writes an event in the transaction that makes the change. A [`Relay`], one at a time
//! among all nodes, numbers the events of each topic 1, 2, 3, … without a gap, and publishes them. Whoever has
//! seen a number catches up from it with [`after`]; a [`Consumer`] that must not miss any keeps its place in
//! the database.
//!
//! # The order
//!
//! If one transaction saw another's change, or had to wait for it, its events have larger numbers. Two that
//! knew nothing of each other are numbered either way, but the same for everybody, and for ever.
//!
//! Why this holds: an event takes its id from a counter as the last thing that its transaction does. Whatever
//! the transaction saw of others was committed before that, and they had taken their ids before they
//! committed. So ids never contradict what came first. The relay looks at what is committed, in one statement,
//! and numbers it by id. If it sees an event, it also sees all those that came first: they were committed
//! earlier. A transaction that took an id but commits late gets its number late. Nobody can have seen its
//! change before, so that number contradicts nothing either. (Numbers given in the writing transactions
//! would be gapless only if they waited for each other; ids alone have gaps, and become visible out of order.)

mod consumer;
mod relay;
mod retention;

pub use consumer::{Consumer, Start};
pub use relay::{Relay, Turn};
pub use retention::{Limits, Retention};

use crate::{Error, Query, Read, Transaction, UnixMs, from_row, sql};

/// What a stream of events is about, such as `chat.message.created`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Topic(pub &'static str);

/// An event with its place in its topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub topic: String,
    /// Which event of the topic this is: 1, 2, 3, … What is published twice has the same number twice.
    pub number: u64,
    /// What it happened to.
    pub key: String,
    pub payload: String,
    pub written_at: UnixMs,
}

/// What happened after a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replay {
    /// The next events in order, none left out. An empty list: nothing happened since.
    Events(Vec<Event>),
    /// The events right after that number are gone, or it was never given. Whoever wants to know how things
    /// stand looks at the database themselves, and goes on after `newest`.
    Missed { oldest: u64, newest: u64 },
}

/// What the relay still has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Events without a number; not counted beyond 10,000.
    pub unnumbered: u64,
    /// Events with a number that were not published.
    pub unpublished: u64,
}

/// An event on its way into the database.
#[derive(Debug)]
pub(crate) struct NewEvent {
    topic: Topic,
    key: String,
    payload: String,
}

const LONGEST_NAME_BYTES: usize = 512;
const LARGEST_PAYLOAD_BYTES: usize = 256 * 1024;

from_row!(Event { topic, number, key, payload, written_at });

impl NewEvent {
    pub(crate) fn new(topic: Topic, key: String, payload: String) -> Result<Self, Error> {
        if topic.0.len().max(key.len()) > LONGEST_NAME_BYTES || payload.len() > LARGEST_PAYLOAD_BYTES {
            return Err(Error::unfit(format!("an event of {} is too large", topic.0)));
        }
        Ok(Self { topic, key, payload })
    }
}

/// Writes the events of a transaction that is about to commit.
pub(crate) async fn write(tx: &Transaction, events: Vec<NewEvent>) -> Result<(), Error> {
    let now = tx.now();
    let rows = events.into_iter().map(|event| (event.topic.0, event.key, event.payload, now));
    let head = "INSERT INTO hob_outbox_new (topic, key, payload, written_at)";
    tx.insert_all(head, rows, "").await.map(drop)
}

/// The events of a topic after a number that was seen, `limit` at most; 0 is before the first.
pub async fn after(database: &impl Read, topic: Topic, number: u64, limit: u16) -> Result<Replay, Error> {
    let events = database.all(numbered_after(topic.0, number, limit)).await?;
    replay(database, topic, number, events).await
}

/// Events that were read are all there were, if nothing after the number is forgotten by now.
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

/// The last number that was given, and the last one that is forgotten.
async fn bounds(database: &impl Read, topic: Topic) -> Result<(u64, u64), Error> {
    let bounds = sql("SELECT numbered, forgotten FROM hob_outbox_topic WHERE topic = $1");
    Ok(database.optional(bounds.bind(topic.0)).await?.unwrap_or_default())
}

/// How far the relay, wherever it runs, is behind.
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
