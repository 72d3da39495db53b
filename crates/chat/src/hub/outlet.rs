//! What waits to be written to one connection: bounded, and taken out all at once.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::protocol::Disconnect;

/// A queue of frames for one connection.
#[derive(Debug)]
pub(crate) struct Outlet {
    inside: Mutex<Inside>,
    changed: Notify,
    most_bytes: usize,
}

#[derive(Debug, Default)]
struct Inside {
    frames: VecDeque<Bytes>,
    bytes: usize,
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
    pub(crate) fn new(most_bytes: usize) -> Self {
        Self { inside: Mutex::default(), changed: Notify::new(), most_bytes }
    }

    /// Queues a frame. A connection that is too slow is ended: it comes back, and recovers.
    pub(crate) fn push(&self, frame: Bytes) {
        let mut inside = self.inside.lock();
        if inside.end.is_some() {
            return;
        }
        inside.bytes += frame.len();
        if inside.bytes > self.most_bytes {
            inside.close(Disconnect::SLOW);
        } else {
            inside.frames.push_back(frame);
        }
        drop(inside);
        self.changed.notify_one();
    }

    /// Ends the connection; what still waits is not written.
    pub(crate) fn close(&self, why: Disconnect) {
        self.inside.lock().close(why);
        self.changed.notify_one();
    }

    /// Waits for something to write, and takes it.
    pub(crate) async fn next(&self) -> Next {
        loop {
            if let Some(next) = self.inside.lock().take() {
                return next;
            }
            self.changed.notified().await;
        }
    }
}

impl Inside {
    fn close(&mut self, why: Disconnect) {
        if self.end.is_none() {
            self.end = Some(why);
            self.frames = VecDeque::new();
        }
    }

    fn take(&mut self) -> Option<Next> {
        if let Some(end) = self.end {
            return Some(Next::End(end));
        }
        let first = self.frames.pop_front()?;
        let mut joined =
            Vec::with_capacity(if self.frames.is_empty() { first.len() } else { AT_ONCE.min(self.bytes) });
        joined.extend_from_slice(&first);
        while let Some(frame) = self.frames.front()
            && joined.len() + frame.len() < AT_ONCE
        {
            joined.push(b'\n');
            joined.extend_from_slice(frame);
            self.bytes -= frame.len();
            self.frames.pop_front();
        }
        self.bytes -= first.len();
        if self.frames.is_empty() {
            // An idle connection holds no memory for what it once had to write.
            self.frames = VecDeque::new();
        }
        Some(Next::Frames(joined))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_waits_is_written_at_once() {
        let outlet = Outlet::new(100);
        for frame in ["a", "b", "c"] {
            outlet.push(Bytes::from_static(frame.as_bytes()));
        }
        let Next::Frames(frames) = outlet.next().await else { panic!("it has ended") };
        assert_eq!(frames, b"a\nb\nc");
        assert_eq!(outlet.inside.lock().bytes, 0);
    }

    #[tokio::test]
    async fn a_connection_that_does_not_keep_up_is_told_to_come_back() {
        let outlet = Outlet::new(5);
        outlet.push(Bytes::from_static(b"123"));
        outlet.push(Bytes::from_static(b"456"));
        assert!(matches!(outlet.next().await, Next::End(Disconnect::SLOW)));
        outlet.push(Bytes::from_static(b"7"));
        assert!(matches!(outlet.next().await, Next::End(Disconnect::SLOW)));
    }
}
