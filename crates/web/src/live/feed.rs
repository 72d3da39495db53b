//! A feed: sends events to any number of clients, as server-sent events.
//!
//! All clients share one ring buffer of the newest events. A client is a position in this ring and has no queue. A
//! client that is slower than the ring is disconnected, reconnects, and receives the missed events, or a reset if there
//! are too many.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use tokio::sync::broadcast;

/// The number of events that a feed keeps for clients that reconnect.
const KEPT: usize = 1_024;

/// Sends events to clients. Clones share the same handle.
#[derive(Clone)]
pub struct Feed {
    inner: Arc<Inner>,
}

struct Inner {
    /// Distinguishes the event numbers of this process from those of an earlier one.
    run: u32,
    ring: Mutex<Ring>,
    receiver: broadcast::Sender<Event>,
}

#[derive(Default)]
struct Ring {
    /// The number of the newest event.
    newest: u64,
    events: VecDeque<Event>,
}

/// An event, encoded once for all clients.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// `None`: for all clients.
    pub(crate) topic: Option<Arc<str>>,
    number: u64,
    pub(crate) encoded: Bytes,
}

/// A new subscription of a client.
pub(crate) struct Subscription {
    /// The events after the last one that the client has received.
    pub(crate) missed: Missed,
    /// The events from now on.
    pub(crate) receiver: broadcast::Receiver<Event>,
}

pub(crate) enum Missed {
    Events(Vec<Event>),
    /// The ring no longer has all missed events. This event makes the client reload everything and continue after it.
    TooMuch(Bytes),
}

impl Feed {
    #[must_use]
    pub fn new() -> Self {
        let receiver = broadcast::Sender::new(KEPT);
        Self { inner: Arc::new(Inner { run: rand::random(), ring: Mutex::default(), receiver }) }
    }

    /// Sends an event to the subscribers of a topic.
    pub fn send(&self, topic: &str, event: &'static str, data: &str) {
        self.push(Some(topic.into()), event, data);
    }

    /// Tells all clients to reload everything.
    pub fn reset(&self) {
        self.push(None, RESET, "");
    }

    /// The number of clients.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.inner.receiver.receiver_count()
    }

    fn push(&self, topic: Option<Arc<str>>, event: &str, data: &str) {
        let mut ring = self.ring();
        ring.newest += 1;
        let encoded = encode(format_args!("{:x}-{}", self.inner.run, ring.newest), event, data);
        let event = Event { topic, number: ring.newest, encoded };
        if ring.events.len() == KEPT {
            ring.events.pop_front();
        }
        ring.events.push_back(event.clone());
        // Sent while the lock is held, so that a new client sees each event exactly once. An error means that there are
        // no clients.
        let _ = self.inner.receiver.send(event);
    }

    /// Subscribes from the event after `last`, or from now on.
    pub(crate) fn attach(&self, last: Option<&str>) -> Subscription {
        let ring = self.ring();
        let receiver = self.inner.receiver.subscribe();
        let missed = match last {
            None => Missed::Events(Vec::new()),
            Some(last) => match self.since(&ring, last) {
                Some(events) => Missed::Events(events),
                None => {
                    Missed::TooMuch(encode(format_args!("{:x}-{}", self.inner.run, ring.newest), RESET, ""))
                }
            },
        };
        Subscription { missed, receiver }
    }

    /// The events after a given one, if the ring still has all of them.
    fn since(&self, ring: &Ring, last: &str) -> Option<Vec<Event>> {
        let (run, number) = last.split_once('-')?;
        let number: u64 = number.parse().ok()?;
        let forgotten = ring.newest - ring.events.len() as u64;
        let known =
            u32::from_str_radix(run, 16) == Ok(self.inner.run) && (forgotten..=ring.newest).contains(&number);
        known.then(|| ring.events.iter().filter(|event| event.number > number).cloned().collect())
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.inner.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The event that tells a client to reload everything.
pub(super) const RESET: &str = "reset";

/// Encodes an event.
pub(super) fn encode(id: fmt::Arguments<'_>, event: &str, data: &str) -> Bytes {
    let mut text = format!("id: {id}\nevent: {event}\n");
    for line in data.split('\n') {
        // A carriage return would end the line as well.
        let _ = writeln!(text, "data: {}", line.replace('\r', ""));
    }
    text.push('\n');
    text.into()
}

impl Default for Feed {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("clients", &self.clients()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed(feed: &Feed, last: &str) -> Option<Vec<u64>> {
        match feed.attach(Some(last)).missed {
            Missed::Events(events) => Some(events.iter().map(|event| event.number).collect()),
            Missed::TooMuch(_) => None,
        }
    }

    #[test]
    fn reconnecting_client_gets_missed_events() {
        let feed = Feed::new();
        for _ in 0..3 {
            feed.send("a", "changed", "a");
        }
        let run = feed.inner.run;
        assert_eq!(missed(&feed, &format!("{run:x}-1")), Some(vec![2, 3]));
        assert_eq!(missed(&feed, &format!("{run:x}-3")), Some(vec![]));
        assert_eq!(missed(&feed, &format!("{run:x}-0")), Some(vec![1, 2, 3]));
    }

    #[test]
    fn client_that_reconnects_too_late_gets_a_reset() {
        let feed = Feed::new();
        for _ in 0..KEPT + 2 {
            feed.send("a", "changed", "a");
        }
        let run = feed.inner.run;
        assert_eq!(missed(&feed, &format!("{run:x}-2")).map(|numbers| numbers.len()), Some(KEPT));
        for last in
            [&format!("{run:x}-1"), &format!("{run:x}-99999"), &format!("{:x}-2", run ^ 1), "", "x", "-"]
        {
            assert_eq!(missed(&feed, last), None, "{last:?}");
        }
    }

    #[test]
    fn data_cannot_become_another_event() {
        let bytes = encode(format_args!("1-2"), "changed", "a\n\nevent: evil\rdata: b");
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(text, "id: 1-2\nevent: changed\ndata: a\ndata: \ndata: event: evildata: b\n\n");
    }
}
