//! The events of an outbox topic as a stream: numbered by the database, so that whoever comes back has missed nothing,
//! or is told so.

use std::collections::VecDeque;
use std::time::Duration;

use axum::body::Bytes;
use axum::response::Response;
use futures_util::stream::{self, Stream};
use hob_database::Database;
use hob_database::outbox::{self, Replay, Topic};
use tokio::time::{Instant, timeout_at};

use super::client::{GREETING, HEARTBEAT, HEARTBEAT_BYTES};
use super::feed::{RESET, wire};
use super::{Changes, Client, Hint};
use crate::Problem;

/// How often new events are looked for when nobody says that there are any.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const BATCH: u16 = 100;

/// One client's place in the topic.
struct Place {
    database: Database,
    topic: Topic,
    /// The number that was sent last.
    last: u64,
    ready: VecDeque<Bytes>,
    hint: Hint,
    beat: Instant,
}

impl Client {
    /// The response that streams the events of a topic, each with its number, from the one after the last that the
    /// client has seen; a client that has seen none hears what comes. An event is called `event` and has the payload as
    /// its data. Where events right after that number are forgotten, a `reset` says so.
    ///
    /// Every client reads the database by itself: this is for few clients that must not miss anything. New events are
    /// seen after two seconds at most, and at once where `changes` tell of the topic `hint`.
    pub async fn stream_outbox(
        self,
        database: &Database,
        topic: Topic,
        changes: &Changes,
        hint: &'static str,
    ) -> Result<Response, Problem> {
        let hint = changes.hint(hint);
        let last = match self.last().and_then(|last| last.parse().ok()) {
            Some(number) => number,
            None => newest(database, topic).await?,
        };
        let ready = VecDeque::from([Bytes::from_static(GREETING)]);
        let beat = Instant::now() + HEARTBEAT;
        let place = Place { database: database.clone(), topic, last, ready, hint, beat };
        Ok(self.respond(place.events()))
    }
}

/// The number of the topic's newest event. No event has the largest number there is, so the answer to what comes after
/// it is where the topic stands.
async fn newest(database: &Database, topic: Topic) -> Result<u64, Problem> {
    match outbox::after(database, topic, i64::MAX as u64, 1).await? {
        Replay::Missed { newest, .. } => Ok(newest),
        Replay::Events(_) => Ok(0),
    }
}

impl Place {
    fn events(self) -> impl Stream<Item = Bytes> + Send {
        stream::unfold(self, async |mut place| Some((place.next().await?, place)))
    }

    /// What is sent next; nothing more when the database is away: the client comes back.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                self.beat = Instant::now() + HEARTBEAT;
                return Some(bytes);
            }
            match outbox::after(&self.database, self.topic, self.last, BATCH).await.ok()? {
                Replay::Events(events) => {
                    for event in events {
                        self.last = event.number;
                        self.ready.push_back(wire(format_args!("{}", event.number), "event", &event.payload));
                    }
                }
                Replay::Missed { newest, .. } => {
                    self.last = newest;
                    self.ready.push_back(wire(format_args!("{newest}"), RESET, ""));
                }
            }
            if self.ready.is_empty() {
                self.wait().await?;
            }
        }
    }

    /// Waits until it is time to look again, or to say that the stream is still there; `None` when there is no more.
    async fn wait(&mut self) -> Option<()> {
        if self.beat <= Instant::now() {
            self.ready.push_back(Bytes::from_static(HEARTBEAT_BYTES));
            return Some(());
        }
        let look = self.beat.min(Instant::now() + LOOK_EVERY);
        match timeout_at(look, self.hint.heard()).await {
            Ok(None) => None,
            Ok(Some(())) | Err(_) => Some(()),
        }
    }
}
