//! A subscriber's bounded queue: when it overflows, the subscriber is told instead of the queue growing.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::bus::BusEvent;

/// A queue of events with one reader.
#[derive(Debug)]
pub(crate) struct Mailbox {
    inside: Mutex<Inside>,
    changed: Notify,
    capacity: usize,
}

#[derive(Debug, Default)]
struct Inside {
    events: VecDeque<BusEvent>,
    /// Something was dropped after the last event in the queue; so is everything until that was told.
    missed: bool,
    closed: bool,
}

impl Mailbox {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { inside: Mutex::default(), changed: Notify::new(), capacity }
    }

    pub(crate) fn put(&self, event: BusEvent) {
        let mut inside = self.inside();
        if inside.missed || inside.events.len() >= self.capacity {
            inside.missed = true;
        } else {
            inside.events.push_back(event);
        }
        drop(inside);
        self.changed.notify_one();
    }

    pub(crate) fn close(&self) {
        self.inside().closed = true;
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
        let mut inside = self.inside();
        if let Some(event) = inside.events.pop_front() {
            return Some(Some(event));
        }
        if std::mem::take(&mut inside.missed) {
            return Some(Some(BusEvent::Missed));
        }
        inside.closed.then_some(None)
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &'static str) -> BusEvent {
        BusEvent::Message { channel: "c".into(), pattern: None, payload: text.into() }
    }

    #[tokio::test]
    async fn an_overflow_is_told_in_its_place_and_what_follows_is_delivered() {
        let mailbox = Mailbox::new(2);
        for text in ["1", "2", "lost", "lost too"] {
            mailbox.put(message(text));
        }
        assert_eq!(mailbox.take().await, Some(message("1")));
        mailbox.put(message("still in the gap"));
        assert_eq!(mailbox.take().await, Some(message("2")));
        assert_eq!(mailbox.take().await, Some(BusEvent::Missed));
        mailbox.put(message("3"));
        mailbox.close();
        assert_eq!(mailbox.take().await, Some(message("3")));
        assert_eq!(mailbox.take().await, None);
    }

    #[tokio::test]
    async fn a_waiting_reader_is_woken() {
        let mailbox = std::sync::Arc::new(Mailbox::new(1));
        let reader = tokio::spawn({
            let mailbox = mailbox.clone();
            async move { mailbox.take().await }
        });
        tokio::task::yield_now().await;
        mailbox.put(message("1"));
        assert_eq!(reader.await.unwrap(), Some(message("1")));
    }
}
