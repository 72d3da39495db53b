//! A feed: fans events out to any number of clients, as server-sent events.
//!
//! There is one ring of the newest events, and a client is a place in it. Thousands of idle clients therefore hold no
//! queues of their own; one that is so slow that the ring overtakes it is cut off, comes back by itself, and is told
//! what it missed, or that it missed too much.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use tokio::sync::broadcast;

/// How many events a feed keeps for those who were away for a moment.
const KEPT: usize = 1_024;

/// Sends events to clients. Clones are handles to the same.
#[derive(Clone)]
pub struct Feed {
    inner: Arc<Inner>,
}

struct Inner {
    /// Tells the numbers of this feed from those of an earlier process.
    run: u32,
    ring: Mutex<Ring>,
    news: broadcast::Sender<Event>,
}

#[derive(Default)]
struct Ring {
    /// The number of the newest event.
    newest: u64,
    events: VecDeque<Event>,
}

/// An event as it goes over the wire, made once for all clients.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// What it is about; `None` concerns everybody.
    pub(crate) topic: Option<Arc<str>>,
    number: u64,
    pub(crate) wire: Bytes,
}

/// What a client gets when it comes.
pub(crate) struct Attached {
    /// What happened while it was away.
    pub(crate) missed: Missed,
    /// What happens from now on.
    pub(crate) news: broadcast::Receiver<Event>,
}

pub(crate) enum Missed {
    Events(Vec<Event>),
    /// More than anybody remembers: the client should look at everything again, and go on after this.
    TooMuch(Bytes),
}

impl Feed {
    #[must_use]
    pub fn new() -> Self {
        let news = broadcast::Sender::new(KEPT);
        Self { inner: Arc::new(Inner { run: rand::random(), ring: Mutex::default(), news }) }
    }

    /// Sends an event about a topic to those who listen to it.
    pub fn send(&self, topic: &str, event: &'static str, data: &str) {
        self.push(Some(topic.into()), event, data);
    }

    /// Tells everybody to look at everything again.
    pub fn reset(&self) {
        self.push(None, RESET, "");
    }

    /// How many clients listen.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.inner.news.receiver_count()
    }

    fn push(&self, topic: Option<Arc<str>>, event: &str, data: &str) {
        let mut ring = self.ring();
        ring.newest += 1;
        let wire = wire(format_args!("{:x}-{}", self.inner.run, ring.newest), event, data);
        let event = Event { topic, number: ring.newest, wire };
        if ring.events.len() == KEPT {
            ring.events.pop_front();
        }
        ring.events.push_back(event.clone());
        // Under the lock, so that whoever attaches sees each event once. An error means that nobody listens.
        let _ = self.inner.news.send(event);
    }

    /// Listens from the event after `last` on, or from now on.
    pub(crate) fn attach(&self, last: Option<&str>) -> Attached {
        let ring = self.ring();
        let news = self.inner.news.subscribe();
        let missed = match last {
            None => Missed::Events(Vec::new()),
            Some(last) => match self.since(&ring, last) {
                Some(events) => Missed::Events(events),
                None => {
                    Missed::TooMuch(wire(format_args!("{:x}-{}", self.inner.run, ring.newest), RESET, ""))
                }
            },
        };
        Attached { missed, news }
    }

    /// The events after one that was seen, if all of them are still known.
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

/// What tells a client to look at everything again.
pub(super) const RESET: &str = "reset";

/// An event as it goes over the wire.
pub(super) fn wire(id: fmt::Arguments<'_>, event: &str, data: &str) -> Bytes {
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
    fn who_was_away_for_a_moment_gets_what_it_missed() {
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
    fn who_was_away_too_long_is_told_so() {
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
        let bytes = wire(format_args!("1-2"), "changed", "a\n\nevent: evil\rdata: b");
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(text, "id: 1-2\nevent: changed\ndata: a\ndata: \ndata: event: evildata: b\n\n");
    }
}
