//! The write queue of one connection: bounded, and written in batches.
//!
//! An idle connection is written to at once. A busy one is written to at an interval, so that several pushes share a
//! frame and a system call. Replies never wait for the interval.

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

/// The capacity of a queue, and the interval between writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteLimits {
    pub(crate) max_bytes: usize,
    pub(crate) interval: Duration,
}

#[derive(Debug, Default)]
struct QueueState {
    frames: VecDeque<Bytes>,
    bytes: usize,
    /// No write before this time, unless there is a reply.
    next: Option<Instant>,
    urgent: bool,
    closed: Option<Disconnect>,
}

/// What to write next.
#[derive(Debug)]
pub(crate) enum NextWrite {
    /// Frames, joined by newlines.
    Frames(Vec<u8>),
    /// A close frame.
    Close(Disconnect),
}

/// The most bytes of one write.
const MAX_WRITE_BYTES: usize = 64 * 1024;

impl WriteQueue {
    pub(crate) fn new(limits: WriteLimits) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), limits }
    }

    /// Queues a push. If the queue is full, the connection is closed, and the client reconnects and recovers.
    pub(crate) fn push(&self, frame: Bytes) {
        let mut state = self.state.lock();
        let first = state.frames.is_empty();
        state.queue(frame, self.limits.max_bytes);
        // One wake-up is enough: the writer takes all queued frames.
        let wake = first || state.closed.is_some();
        drop(state);
        if wake {
            self.changed.notify_one();
        }
    }

    /// Queues a reply. It is written at once.
    pub(crate) fn reply(&self, frame: Bytes) {
        let mut state = self.state.lock();
        state.queue(frame, self.limits.max_bytes);
        state.urgent = true;
        drop(state);
        self.changed.notify_one();
    }

    /// Whether the queue is empty.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.lock().frames.is_empty()
    }

    /// Closes the connection. Queued frames are dropped.
    pub(crate) fn close(&self, reason: Disconnect) {
        self.state.lock().close(reason);
        self.changed.notify_one();
    }

    /// Waits for something to write.
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

/// Whether the queue can be written.
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
        if let Some(closed) = self.closed.clone() {
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

    /// Joins as many frames as fit in one write.
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
            // Frees the memory of an idle connection.
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
            NextWrite::Close(closed) => panic!("closed: {closed:?}"),
        }
    }

    #[tokio::test]
    async fn queued_frames_are_written_together() {
        let queue = queue(100, Duration::ZERO);
        for frame in ["a", "b", "c"] {
            queue.push(Bytes::from_static(frame.as_bytes()));
        }
        assert_eq!(frames(&queue).await, b"a\nb\nc");
        assert_eq!(queue.state.lock().bytes, 0);
    }

    #[tokio::test]
    async fn pushes_on_a_busy_connection_are_batched_and_replies_are_not_delayed() {
        let queue = queue(100, Duration::from_secs(3_600));
        queue.push(Bytes::from_static(b"first"));
        assert_eq!(frames(&queue).await, b"first", "the connection was idle");
        queue.push(Bytes::from_static(b"a"));
        queue.push(Bytes::from_static(b"b"));
        let waiting = tokio::time::timeout(Duration::from_millis(20), queue.next()).await;
        assert!(waiting.is_err(), "{waiting:?}");
        queue.reply(Bytes::from_static(b"reply"));
        assert_eq!(frames(&queue).await, b"a\nb\nreply");
    }

    #[tokio::test]
    async fn pushes_are_written_after_the_interval() {
        let queue = queue(100, Duration::from_millis(5));
        for frame in ["a", "b"] {
            queue.push(Bytes::from_static(frame.as_bytes()));
            assert_eq!(frames(&queue).await, frame.as_bytes());
        }
    }

    #[tokio::test]
    async fn slow_connection_is_closed() {
        let queue = queue(5, Duration::ZERO);
        queue.push(Bytes::from_static(b"123"));
        queue.push(Bytes::from_static(b"456"));
        assert!(matches!(queue.next().await, NextWrite::Close(reason) if reason == Disconnect::SLOW));
        queue.push(Bytes::from_static(b"7"));
        assert!(matches!(queue.next().await, NextWrite::Close(reason) if reason == Disconnect::SLOW));
    }
}
