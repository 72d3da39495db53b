//! What waits to be written to one connection: bounded, and taken out all at once.
//!
//! What comes after a quiet moment is written at once. A busy connection is written to at a pace, so that what comes in
//! between shares a frame and a system call; but nobody waits for an answer because of it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::session::protocol::Disconnect;

/// A queue of frames for one connection.
#[derive(Debug)]
pub(crate) struct Outlet {
    inside: Mutex<Inside>,
    changed: Notify,
    limits: Limits,
}

/// What an outlet may hold, and how often it is emptied at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) most_bytes: usize,
    pub(crate) every: Duration,
}

#[derive(Debug, Default)]
struct Inside {
    frames: VecDeque<Bytes>,
    bytes: usize,
    /// Not before this, unless something is urgent.
    next: Option<Instant>,
    urgent: bool,
    end: Option<Disconnect>,
}

/// What is to be written next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Frames, joined by newlines into one.
    Frames(Vec<u8>),
    /// Nothing any more.
    End(Disconnect),
}

/// As much is written at once; a longer queue takes several turns.
const AT_ONCE: usize = 64 * 1024;

impl Outlet {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { inside: Mutex::default(), changed: Notify::new(), limits }
    }

    /// Queues news. A connection that is too slow is ended: it comes back, and recovers.
    pub(crate) fn push(&self, frame: Bytes) {
        let mut inside = self.inside.lock();
        let first = inside.frames.is_empty();
        inside.queue(frame, self.limits.most_bytes);
        // Whoever writes sees all that is there: waking it once is enough.
        let wake = first || inside.end.is_some();
        drop(inside);
        if wake {
            self.changed.notify_one();
        }
    }

    /// Queues an answer, which somebody waits for.
    pub(crate) fn reply(&self, frame: Bytes) {
        let mut inside = self.inside.lock();
        inside.queue(frame, self.limits.most_bytes);
        inside.urgent = true;
        drop(inside);
        self.changed.notify_one();
    }

    /// Whether everything was taken.
    pub(crate) fn is_idle(&self) -> bool {
        self.inside.lock().frames.is_empty()
    }

    /// Ends the connection; what still waits is not written.
    pub(crate) fn close(&self, why: Disconnect) {
        self.inside.lock().close(why);
        self.changed.notify_one();
    }

    /// Waits for something to write, and takes it.
    pub(crate) async fn next(&self) -> Next {
        loop {
            let wait = match self.inside.lock().take(self.limits.every) {
                Take::Now(next) => return next,
                Take::Later(at) => Some(at),
                Take::Nothing => None,
            };
            match wait {
                Some(at) => {
                    let _ = tokio::time::timeout_at(at.into(), self.changed.notified()).await;
                }
                None => self.changed.notified().await,
            }
        }
    }
}

/// What there is to take.
enum Take {
    Now(Next),
    Later(Instant),
    Nothing,
}

impl Inside {
    fn queue(&mut self, frame: Bytes, most_bytes: usize) {
        if self.end.is_some() {
            return;
        }
        self.bytes += frame.len();
        if self.bytes > most_bytes {
            self.close(Disconnect::SLOW);
        } else {
            self.frames.push_back(frame);
        }
    }

    fn close(&mut self, why: Disconnect) {
        if self.end.is_none() {
            self.end = Some(why);
            self.frames = VecDeque::new();
        }
    }

    fn take(&mut self, every: Duration) -> Take {
        if let Some(end) = self.end {
            return Take::Now(Next::End(end));
        }
        if self.frames.is_empty() {
            return Take::Nothing;
        }
        let now = Instant::now();
        match self.next {
            Some(next) if next > now && !self.urgent => Take::Later(next),
            _ => {
                self.next = Some(now + every);
                Take::Now(Next::Frames(self.join()))
            }
        }
    }

    /// The frames, as many as are written at once.
    fn join(&mut self) -> Vec<u8> {
        let mut joined = Vec::with_capacity(AT_ONCE.min(self.bytes + self.frames.len()));
        while let Some(frame) = self.frames.front()
            && (joined.is_empty() || joined.len() + frame.len() < AT_ONCE)
        {
            if !joined.is_empty() {
                joined.push(b'\n');
            }
            joined.extend_from_slice(frame);
            self.bytes -= frame.len();
            self.frames.pop_front();
        }
        if self.frames.is_empty() {
            // An idle connection holds no memory for what it once had to write.
            self.frames = VecDeque::new();
            self.urgent = false;
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outlet(most_bytes: usize, every: Duration) -> Outlet {
        Outlet::new(Limits { most_bytes, every })
    }

    async fn frames(outlet: &Outlet) -> Vec<u8> {
        match outlet.next().await {
            Next::Frames(frames) => frames,
            Next::End(end) => panic!("it has ended: {end:?}"),
        }
    }

    #[tokio::test]
    async fn what_waits_is_written_at_once() {
        let outlet = outlet(100, Duration::ZERO);
        for frame in ["a", "b", "c"] {
            outlet.push(Bytes::from_static(frame.as_bytes()));
        }
        assert_eq!(frames(&outlet).await, b"a\nb\nc");
        assert_eq!(outlet.inside.lock().bytes, 0);
    }

    #[tokio::test]
    async fn news_of_a_busy_connection_go_together_and_answers_do_not_wait() {
        let outlet = outlet(100, Duration::from_secs(3_600));
        outlet.push(Bytes::from_static(b"first"));
        assert_eq!(frames(&outlet).await, b"first", "after a quiet moment");
        outlet.push(Bytes::from_static(b"a"));
        outlet.push(Bytes::from_static(b"b"));
        let waiting = tokio::time::timeout(Duration::from_millis(20), outlet.next()).await;
        assert!(waiting.is_err(), "{waiting:?}");
        outlet.reply(Bytes::from_static(b"answer"));
        assert_eq!(frames(&outlet).await, b"a\nb\nanswer");
    }

    #[tokio::test]
    async fn what_waits_is_written_when_its_time_has_come() {
        let outlet = outlet(100, Duration::from_millis(5));
        for frame in ["a", "b"] {
            outlet.push(Bytes::from_static(frame.as_bytes()));
            assert_eq!(frames(&outlet).await, frame.as_bytes());
        }
    }

    #[tokio::test]
    async fn a_connection_that_does_not_keep_up_is_told_to_come_back() {
        let outlet = outlet(5, Duration::ZERO);
        outlet.push(Bytes::from_static(b"123"));
        outlet.push(Bytes::from_static(b"456"));
        assert!(matches!(outlet.next().await, Next::End(Disconnect::SLOW)));
        outlet.push(Bytes::from_static(b"7"));
        assert!(matches!(outlet.next().await, Next::End(Disconnect::SLOW)));
    }
}
