//! The write queue of one connection: bounded, and written in batches.
//!
//! A push is written directly by the task that publishes it, so that the task of the connection does not have to wake up. If
//! the connection is busy or the client is slow, pushes are queued, and the task of the connection writes them together.
//! Replies never wait for the interval.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hob_net::{DirectWrite, SocketWriter};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::frame::{SharedPush, SocketFrame};
use crate::session::protocol::{Disconnect, Format, Push, Reply};

/// A queue of frames for one connection.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    state: Mutex<QueueState>,
    changed: Notify,
    limits: WriteLimits,
    format: Format,
    /// Writes pushes directly, if the connection is not encrypted.
    writer: Option<SocketWriter>,
}

/// The capacity of a queue, and the interval between writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteLimits {
    pub(crate) max_bytes: usize,
    pub(crate) interval: Duration,
}

/// How many connections the publishing task writes to. The tasks of the other connections do it themselves, so
/// that the publishing task does not block its thread for longer than some milliseconds.
const MAX_DIRECT_WRITES: u64 = 1_024;

#[derive(Debug, Default)]
struct QueueState {
    frames: VecDeque<Bytes>,
    bytes: usize,
    pace: Pace,
    /// Whether there is a reply, which does not wait.
    urgent: bool,
    /// Whether the task of the connection is writing frames of this queue.
    writing: bool,
    /// Whether the task of the connection must write the rest of a push.
    unfinished: bool,
    closed: Option<Disconnect>,
}

/// How often a connection is written to: several times per interval, and if that is not enough, once per interval. The interval
/// of a connection that stays busy becomes longer.
#[derive(Debug, Default)]
struct Pace {
    /// The end of the current interval.
    until: Option<Instant>,
    length: Duration,
    /// The writes that are left in this interval.
    left: u8,
    /// Whether a push has waited in this interval.
    waited: bool,
}

/// What to write next.
#[derive(Debug)]
pub(crate) enum NextWrite {
    /// The payload of a frame with one or more messages.
    Messages(Vec<u8>),
    /// The rest of a push.
    Flush,
    /// A close frame.
    Close(Disconnect),
}

/// The most bytes of one write.
const MAX_WRITE_BYTES: usize = 64 * 1024;
/// The writes in one interval before a connection counts as busy.
const MAX_BURST: u8 = 4;
/// How many times as long the interval of a busy connection can become.
const MAX_STRETCH: u32 = 5;

impl WriteQueue {
    pub(crate) fn new(format: Format, limits: WriteLimits, writer: Option<SocketWriter>) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), limits, format, writer }
    }

    /// How the messages of the connection are encoded.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Pushes to this connection only.
    pub(crate) fn push(&self, push: Push) {
        self.push_frame(SharedPush::from(push).frame(self.format));
    }

    /// Writes a push, or queues it. If the queue is full, the connection is closed, and the client reconnects and recovers.
    pub(crate) fn push_frame(&self, frame: &SocketFrame) {
        let mut state = self.state.lock();
        let direct = match &self.writer {
            Some(writer) if state.can_write_directly(self.limits.interval) => writer.write(frame.bytes()),
            _ => DirectWrite::Refused,
        };
        match direct {
            DirectWrite::Written => state.pace.count(),
            DirectWrite::Unfinished => {
                state.pace.count();
                state.unfinished = true;
                drop(state);
                self.changed.notify_one();
            }
            DirectWrite::Refused => self.queue(state, frame),
        }
    }

    /// Pushes what was pushed to `delivered` other connections before.
    pub(crate) fn push_shared(&self, push: &SharedPush, delivered: u64) {
        let frame = push.frame(self.format);
        if delivered < MAX_DIRECT_WRITES {
            self.push_frame(frame);
        } else {
            self.queue(self.state.lock(), frame);
        }
    }

    fn queue(&self, mut state: parking_lot::MutexGuard<'_, QueueState>, frame: &SocketFrame) {
        let first = state.frames.is_empty();
        state.queue(frame.payload(), self.limits.max_bytes);
        // One wake-up is enough: the writer takes all queued frames.
        let wake = first || state.closed.is_some();
        drop(state);
        if wake {
            self.changed.notify_one();
        }
    }

    /// Queues a reply. It is written at once.
    pub(crate) fn reply(&self, reply: &Reply) {
        let message = self.format.encode(reply);
        let mut state = self.state.lock();
        state.queue(message, self.limits.max_bytes);
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

    /// Waits for something to write. What was returned before must be written.
    pub(crate) async fn next(&self) -> NextWrite {
        self.state.lock().writing = false;
        loop {
            let ready_at = match self.state.lock().take(self.limits.interval, self.format.separator()) {
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

impl Pace {
    /// `Err` with the time of the next write if the connection was written to too often.
    fn check(&mut self, interval: Duration) -> Result<(), Instant> {
        let now = Instant::now();
        if let Some(until) = self.until.filter(|until| now < *until) {
            if self.left > 0 {
                return Ok(());
            }
            self.waited = true;
            return Err(until);
        }
        let is_busy = self.waited && self.until.is_some_and(|until| now < until + self.length);
        (self.length, self.left) =
            if is_busy { ((self.length * 2).min(interval * MAX_STRETCH), 1) } else { (interval, MAX_BURST) };
        self.waited = false;
        self.until = Some(now + self.length);
        Ok(())
    }

    fn count(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}

/// Whether the queue can be written.
enum Readiness {
    Ready(NextWrite),
    ReadyAt(Instant),
    Empty,
}

impl QueueState {
    /// Whether nothing has to be written before a push.
    fn can_write_directly(&mut self, interval: Duration) -> bool {
        self.frames.is_empty()
            && !self.writing
            && !self.unfinished
            && self.closed.is_none()
            && self.pace.check(interval).is_ok()
    }

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

    fn take(&mut self, interval: Duration, separator: &[u8]) -> Readiness {
        if let Some(closed) = self.closed.clone() {
            return Readiness::Ready(NextWrite::Close(closed));
        }
        if std::mem::take(&mut self.unfinished) {
            return Readiness::Ready(NextWrite::Flush);
        }
        if self.frames.is_empty() {
            return Readiness::Empty;
        }
        match self.pace.check(interval) {
            Err(at) if !self.urgent => Readiness::ReadyAt(at),
            _ => {
                self.pace.count();
                self.writing = true;
                Readiness::Ready(NextWrite::Messages(self.join(separator)))
            }
        }
    }

    /// Joins as many messages as fit in one write.
    fn join(&mut self, separator: &[u8]) -> Vec<u8> {
        let mut joined = Vec::with_capacity(MAX_WRITE_BYTES.min(self.bytes + self.frames.len()));
        while let Some(frame) = self.frames.front()
            && (joined.is_empty() || joined.len() + frame.len() < MAX_WRITE_BYTES)
        {
            if !joined.is_empty() {
                joined.extend_from_slice(separator);
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
        WriteQueue::new(Format::Json, WriteLimits { max_bytes, interval }, None)
    }

    fn push(queue: &WriteQueue, payload: &str) {
        queue.push_frame(&SocketFrame::new(Format::Json, payload.as_bytes()));
    }

    async fn frames(queue: &WriteQueue) -> Vec<u8> {
        match queue.next().await {
            NextWrite::Messages(messages) => messages,
            next => panic!("{next:?}"),
        }
    }

    #[tokio::test]
    async fn queued_frames_are_written_together() {
        let queue = queue(100, Duration::ZERO);
        for frame in ["a", "b", "c"] {
            push(&queue, frame);
        }
        assert_eq!(frames(&queue).await, b"a\nb\nc");
        assert_eq!(queue.state.lock().bytes, 0);
    }

    #[tokio::test]
    async fn pushes_on_a_busy_connection_are_batched_and_replies_are_not_delayed() {
        let queue = queue(100, Duration::from_secs(3_600));
        for _ in 0..MAX_BURST {
            push(&queue, "first");
            assert_eq!(frames(&queue).await, b"first", "the connection was not busy");
        }
        push(&queue, "a");
        push(&queue, "b");
        let waiting = tokio::time::timeout(Duration::from_millis(20), queue.next()).await;
        assert!(waiting.is_err(), "{waiting:?}");
        queue.reply(&Reply::default());
        assert_eq!(frames(&queue).await, b"a\nb\n{}");
    }

    #[tokio::test]
    async fn pushes_are_written_after_the_interval() {
        let queue = queue(100, Duration::from_millis(5));
        for frame in ["a", "b"] {
            push(&queue, frame);
            assert_eq!(frames(&queue).await, frame.as_bytes());
        }
    }

    #[tokio::test]
    async fn slow_connection_is_closed() {
        let queue = queue(5, Duration::ZERO);
        push(&queue, "123");
        push(&queue, "456");
        assert!(matches!(queue.next().await, NextWrite::Close(reason) if reason == Disconnect::SLOW));
        push(&queue, "7");
        assert!(matches!(queue.next().await, NextWrite::Close(reason) if reason == Disconnect::SLOW));
    }

    #[test]
    fn interval_of_a_busy_connection_becomes_longer() {
        const INTERVAL: Duration = Duration::from_millis(20);
        let mut pace = Pace::default();
        let mut lengths = Vec::new();
        for _ in 0..6 {
            while pace.check(INTERVAL).is_ok() {
                pace.count();
            }
            lengths.push(pace.length / INTERVAL.as_millis() as u32);
            // The interval has just ended.
            pace.until = Some(Instant::now());
        }
        assert_eq!(lengths, [1, 2, 4, 5, 5, 5].map(Duration::from_millis));
        pace.until = Some(Instant::now().checked_sub(INTERVAL * 10).unwrap());
        assert!(pace.check(INTERVAL).is_ok());
        assert_eq!((pace.length, pace.left), (INTERVAL, MAX_BURST), "the connection was idle meanwhile");
    }
}
