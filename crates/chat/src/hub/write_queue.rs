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
pub(crate) struct WriteQueue {
    state: Mutex<QueueState>,
    changed: Notify,
    limits: WriteLimits,
}

/// What an outlet may hold, and how often it is emptied at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteLimits {
    pub(crate) max_bytes: usize,
    pub(crate) interval: Duration,
}

#[derive(Debug, Default)]
struct QueueState {
    frames: VecDeque<Bytes>,
    bytes: usize,
    /// Not before this, unless something is urgent.
    next: Option<Instant>,
    urgent: bool,
    closed: Option<Disconnect>,
}

/// What is to be written next.
#[derive(Debug)]
pub(crate) enum NextWrite {
    /// Frames, joined by newlines into one.
    Frames(Vec<u8>),
    /// Nothing any more.
    Close(Disconnect),
}

/// As much is written at once; a longer queue takes several turns.
const MAX_WRITE_BYTES: usize = 64 * 1024;

impl WriteQueue {
    pub(crate) fn new(limits: WriteLimits) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), limits }
    }

    /// Queues news. A connection that is too slow is ended: it comes back, and recovers.
    pub(crate) fn push(&self, frame: Bytes) {
        let mut state = self.state.lock();
        let first = state.frames.is_empty();
        state.queue(frame, self.limits.max_bytes);
        // Whoever writes sees all that is there: waking it once is enough.
        let wake = first || state.closed.is_some();
        drop(state);
        if wake {
            self.changed.notify_one();
        }
    }

    /// Queues an answer, which somebody waits for.
    pub(crate) fn reply(&self, frame: Bytes) {
        let mut state = self.state.lock();
        state.queue(frame, self.limits.max_bytes);
        state.urgent = true;
        drop(state);
        self.changed.notify_one();
    }

    /// Whether everything was taken.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.lock().frames.is_empty()
    }

    /// Ends the connection; what still waits is not written.
    pub(crate) fn close(&self, reason: Disconnect) {
        self.state.lock().close(reason);
        self.changed.notify_one();
    }

    /// Waits for something to write, and takes it.
    pub(crate) async fn next(&self) -> NextWrite {
        loop {
            let ready_at = match self.state.lock().take(self.limits.interval) {
                Readiness::Ready(next) => return next,
                Readiness::ReadyAt(at) => Some(at),
                Readiness::Empty => None,
            };
            match ready_at {
                Some(at) => {
                    let _ = tokio::time::timeout_at(at.into(), self.changed.notified()).await;
                }
                None => self.changed.notified().await,
            }
        }
    }
}

/// What there is to take.
enum Readiness {
    Ready(NextWrite),
    ReadyAt(Instant),
    Empty,
}

impl QueueState {
    fn queue(&mut self, frame: Bytes, max_bytes: usize) {
        if self.closed.is_some() {
            return;
        }
        self.bytes += frame.len();
        if self.bytes > max_bytes {
            self.close(Disconnect::SLOW);
        } else {
            self.frames.push_back(frame);
        }
    }

    fn close(&mut self, reason: Disconnect) {
        if self.closed.is_none() {
            self.closed = Some(reason);
            self.frames = VecDeque::new();
        }
    }

    fn take(&mut self, interval: Duration) -> Readiness {
        if let Some(closed) = self.closed {
            return Readiness::Ready(NextWrite::Close(closed));
        }
        if self.frames.is_empty() {
            return Readiness::Empty;
        }
        let now = Instant::now();
        match self.next {
            Some(next) if next > now && !self.urgent => Readiness::ReadyAt(next),
            _ => {
                self.next = Some(now + interval);
                Readiness::Ready(NextWrite::Frames(self.join()))
            }
        }
    }

    /// The frames, as many as are written at once.
    fn join(&mut self) -> Vec<u8> {
        let mut joined = Vec::with_capacity(MAX_WRITE_BYTES.min(self.bytes + self.frames.len()));
        while let Some(frame) = self.frames.front()
            && (joined.is_empty() || joined.len() + frame.len() < MAX_WRITE_BYTES)
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

    fn queue(max_bytes: usize, interval: Duration) -> WriteQueue {
        WriteQueue::new(WriteLimits { max_bytes, interval })
    }

    async fn frames(queue: &WriteQueue) -> Vec<u8> {
        match queue.next().await {
            NextWrite::Frames(frames) => frames,
            NextWrite::Close(closed) => panic!("it has ended: {closed:?}"),
        }
    }

    #[tokio::test]
    async fn what_waits_is_written_at_once() {
        let queue = queue(100, Duration::ZERO);
        for frame in ["a", "b", "c"] {
            queue.push(Bytes::from_static(frame.as_bytes()));
        }
        assert_eq!(frames(&queue).await, b"a\nb\nc");
        assert_eq!(queue.state.lock().bytes, 0);
    }

    #[tokio::test]
    async fn news_of_a_busy_connection_go_together_and_answers_do_not_wait() {
        let queue = queue(100, Duration::from_secs(3_600));
        queue.push(Bytes::from_static(b"first"));
        assert_eq!(frames(&queue).await, b"first", "after a quiet moment");
        queue.push(Bytes::from_static(b"a"));
        queue.push(Bytes::from_static(b"b"));
        let waiting = tokio::time::timeout(Duration::from_millis(20), queue.next()).await;
        assert!(waiting.is_err(), "{waiting:?}");
        queue.reply(Bytes::from_static(b"answer"));
        assert_eq!(frames(&queue).await, b"a\nb\nanswer");
    }

    #[tokio::test]
    async fn what_waits_is_written_when_its_time_has_come() {
        let queue = queue(100, Duration::from_millis(5));
        for frame in ["a", "b"] {
            queue.push(Bytes::from_static(frame.as_bytes()));
            assert_eq!(frames(&queue).await, frame.as_bytes());
        }
    }

    #[tokio::test]
    async fn a_connection_that_does_not_keep_up_is_told_to_come_back() {
        let queue = queue(5, Duration::ZERO);
        queue.push(Bytes::from_static(b"123"));
        queue.push(Bytes::from_static(b"456"));
        assert!(matches!(queue.next().await, NextWrite::Close(Disconnect::SLOW)));
        queue.push(Bytes::from_static(b"7"));
        assert!(matches!(queue.next().await, NextWrite::Close(Disconnect::SLOW)));
    }
}
