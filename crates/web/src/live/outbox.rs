//! Streams the events of an outbox topic. The database numbers them, so that a reconnecting client either misses
//! nothing or receives a reset.

use std::collections::VecDeque;
use std::time::Duration;

use axum::body::Bytes;
use axum::response::Response;
use futures_util::stream::{self, Stream};
use hob_database::Database;
use hob_database::outbox::{self, Replay, Topic};
use tokio::time::{Instant, timeout_at};

use super::client::{HEARTBEAT, HEARTBEAT_BYTES, PREAMBLE};
use super::feed::{RESET, encode};
use super::{ChangeListener, Changes, Client};
use crate::Problem;

/// How often to poll without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
const BATCH: u16 = 100;

/// The stream of one client.
struct OutboxStream {
    database: Database,
    topic: Topic,
    /// The number of the last event sent.
    last: u64,
    ready: VecDeque<Bytes>,
    listener: ChangeListener,
    heartbeat_at: Instant,
}

impl Client {
    /// Streams the events of a topic, each with its number, after the `Last-Event-ID` of the client, or from now on. The
    /// event name is `event`, the data its payload. If events after that number were deleted, the stream sends a `reset`.
    ///
    /// Every client polls the database, so use this only for a few clients that must not miss events. New events are
    /// sent within two seconds, or at once if `changes` notifies `notified_topic`.
    pub async fn stream_outbox(
        self,
        database: &Database,
        topic: Topic,
        changes: &Changes,
        notified_topic: &'static str,
    ) -> Result<Response, Problem> {
        let listener = changes.listen(notified_topic);
        let last = match self.last().and_then(|last| last.parse().ok()) {
            Some(number) => number,
            None => newest(database, topic).await?,
        };
        let ready = VecDeque::from([Bytes::from_static(PREAMBLE)]);
        let heartbeat_at = Instant::now() + HEARTBEAT;
        let stream_state =
            OutboxStream { database: database.clone(), topic, last, ready, listener, heartbeat_at };
        Ok(self.respond(stream_state.events()))
    }
}

/// The number of the newest event of the topic. No event has the largest number, so a replay after it returns the newest.
async fn newest(database: &Database, topic: Topic) -> Result<u64, Problem> {
    match outbox::after(database, topic, i64::MAX as u64, 1).await? {
        Replay::Missed { newest, .. } => Ok(newest),
        Replay::Events(_) => Ok(0),
    }
}

impl OutboxStream {
    fn events(self) -> impl Stream<Item = Bytes> + Send {
        stream::unfold(self, async |mut stream_state| Some((stream_state.next().await?, stream_state)))
    }

    /// The next bytes. The stream ends if the database is unavailable, and the client reconnects.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                self.heartbeat_at = Instant::now() + HEARTBEAT;
                return Some(bytes);
            }
            match outbox::after(&self.database, self.topic, self.last, BATCH).await.ok()? {
                Replay::Events(events) => {
                    for event in events {
                        self.last = event.number;
                        self.ready.push_back(encode(
                            format_args!("{}", event.number),
                            "event",
                            &event.payload,
                        ));
                    }
                }
                Replay::Missed { newest, .. } => {
                    self.last = newest;
                    self.ready.push_back(encode(format_args!("{newest}"), RESET, ""));
                }
            }
            if self.ready.is_empty() {
                self.wait().await?;
            }
        }
    }

    /// Waits for the next poll or heartbeat; `None` at the end.
    async fn wait(&mut self) -> Option<()> {
        if self.heartbeat_at <= Instant::now() {
            self.ready.push_back(Bytes::from_static(HEARTBEAT_BYTES));
            return Some(());
        }
        let poll_at = self.heartbeat_at.min(Instant::now() + POLL_INTERVAL);
        match timeout_at(poll_at, self.listener.changed()).await {
            Ok(None) => None,
            Ok(Some(())) | Err(_) => Some(()),
        }
    }
}
