//! A subscriber's bounded queue. On overflow events are dropped and the subscriber receives `Missed`.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::bus::BusEvent;

/// A queue of events with one reader.
#[derive(Debug)]
pub(crate) struct EventQueue {
    state: Mutex<State>,
    changed: Notify,
    capacity: usize,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<BusEvent>,
    /// Events were dropped after the last one in the queue. More are dropped until the reader has received `Missed`.
    missed: bool,
    closed: bool,
}

impl EventQueue {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { state: Mutex::default(), changed: Notify::new(), capacity }
    }

    pub(crate) fn put(&self, event: BusEvent) {
        let mut state = self.state();
        if state.missed || state.events.len() >= self.capacity {
            state.missed = true;
        } else {
            state.events.push_back(event);
        }
        drop(state);
        self.changed.notify_one();
    }

    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_one();
    }

    /// The next event in order; `None` once closed and empty.
    pub(crate) async fn take(&self) -> Option<BusEvent> {
        loop {
            if let Some(event) = self.try_take() {
                return event;
            }
            self.changed.notified().await;
        }
    }

    fn try_take(&self) -> Option<Option<BusEvent>> {
        let mut state = self.state();
        if let Some(event) = state.events.pop_front() {
            return Some(Some(event));
        }
        if std::mem::take(&mut state.missed) {
            return Some(Some(BusEvent::Missed));
        }
        state.closed.then_some(None)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &'static str) -> BusEvent {
        BusEvent::Message { channel: "c".into(), pattern: None, payload: text.into() }
    }

    #[tokio::test]
    async fn overflow_is_reported_in_order() {
        let queue = EventQueue::new(2);
        for text in ["1", "2", "lost", "lost too"] {
            queue.put(message(text));
        }
        assert_eq!(queue.take().await, Some(message("1")));
        queue.put(message("still in the gap"));
        assert_eq!(queue.take().await, Some(message("2")));
        assert_eq!(queue.take().await, Some(BusEvent::Missed));
        queue.put(message("3"));
        queue.close();
        assert_eq!(queue.take().await, Some(message("3")));
        assert_eq!(queue.take().await, None);
    }

    #[tokio::test]
    async fn waiting_reader_is_woken() {
        let queue = std::sync::Arc::new(EventQueue::new(1));
        let reader = tokio::spawn({
            let queue = queue.clone();
            async move { queue.take().await }
        });
        tokio::task::yield_now().await;
        queue.put(message("1"));
        assert_eq!(reader.await.unwrap(), Some(message("1")));
    }
}
