//! Pub/sub within the process.

use std::fmt;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::engine::Engine;
use crate::hub::{Delivery, Inbox, Mailbox, Topic, mailbox};

/// What a subscriber hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Message {
        channel: Bytes,
        pattern: Option<Bytes>,
        payload: Bytes,
    },
    /// So many messages found the queue full and are lost to this subscriber.
    Missed(u64),
}

/// A pub/sub connection that needs no socket. Dropping it ends its subscriptions.
pub struct Subscriber {
    engine: Engine,
    id: u64,
    mailbox: Mailbox,
    inbox: Inbox,
    topics: Vec<(Topic, Bytes)>,
}

impl Subscriber {
    pub(crate) fn new(engine: Engine) -> Subscriber {
        let (id, queue) = engine.with_core(|core| (core.clients.next_id(), core.settings.subscriber_queue));
        let (mailbox, inbox) = mailbox(queue, None);
        Subscriber { engine, id, mailbox, inbox, topics: Vec::new() }
    }

    pub fn subscribe(&mut self, channel: &[u8]) {
        self.join(Topic::Channel, channel);
    }

    pub fn psubscribe(&mut self, pattern: &[u8]) {
        self.join(Topic::Pattern, pattern);
    }

    pub fn unsubscribe(&mut self, channel: &[u8]) {
        self.leave(Topic::Channel, channel);
    }

    pub fn punsubscribe(&mut self, pattern: &[u8]) {
        self.leave(Topic::Pattern, pattern);
    }

    /// Waits for the next event. What was lost is told before what comes after it.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let missed = self.inbox.missed.swap(0, Ordering::Relaxed);
            if missed > 0 {
                return Some(Event::Missed(missed));
            }
            if let Delivery::Message { channel, pattern, payload } = self.inbox.receiver.recv().await? {
                return Some(Event::Message { channel, pattern, payload });
            }
        }
    }

    fn join(&mut self, topic: Topic, name: &[u8]) {
        let name = Bytes::copy_from_slice(name);
        let (id, mailbox) = (self.id, self.mailbox.clone());
        self.engine.with_core(|core| core.hub.subscribe(topic, name.clone(), id, mailbox));
        if !self.topics.contains(&(topic, name.clone())) {
            self.topics.push((topic, name));
        }
    }

    fn leave(&mut self, topic: Topic, name: &[u8]) {
        self.engine.with_core(|core| core.hub.unsubscribe(topic, name, self.id));
        self.topics.retain(|(other, known)| (*other, &**known) != (topic, name));
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        for (topic, name) in std::mem::take(&mut self.topics) {
            self.leave(topic, &name);
        }
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").field("id", &self.id).field("topics", &self.topics).finish()
    }
}
