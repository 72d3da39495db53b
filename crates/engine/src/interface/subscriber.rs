//! Pub/sub within the process.

use std::fmt;

use bytes::Bytes;

use crate::engine::Engine;
use crate::hub::{Delivery, MessageReceiver, MessageSender, SubscriptionKind};

/// An event of a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Message {
        channel: Bytes,
        pattern: Option<Bytes>,
        payload: Bytes,
    },
    /// This many messages were dropped because the queue was full: too many messages, or too many bytes.
    Missed(u64),
}

/// A pub/sub connection that needs no socket. Dropping it ends its subscriptions.
pub struct Subscriber {
    engine: Engine,
    id: u64,
    sender: MessageSender,
    incoming: MessageReceiver,
    subscriptions: Vec<(SubscriptionKind, Bytes)>,
}

impl Subscriber {
    pub(crate) fn new(engine: Engine) -> Subscriber {
        let (id, (sender, incoming)) = engine.with_core(|core| {
            (core.clients.next_id(), core.hub.message_queue(core.settings.subscriber_limits, None))
        });
        Subscriber { engine, id, sender, incoming, subscriptions: Vec::new() }
    }

    pub fn subscribe(&mut self, channel: &[u8]) {
        self.add(SubscriptionKind::Channel, channel);
    }

    pub fn psubscribe(&mut self, pattern: &[u8]) {
        self.add(SubscriptionKind::Pattern, pattern);
    }

    pub fn unsubscribe(&mut self, channel: &[u8]) {
        self.remove(SubscriptionKind::Channel, channel);
    }

    pub fn punsubscribe(&mut self, pattern: &[u8]) {
        self.remove(SubscriptionKind::Pattern, pattern);
    }

    /// Waits for the next event. Dropped messages are reported before the messages that follow them.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let missed = self.incoming.take_missed();
            if missed > 0 {
                return Some(Event::Missed(missed));
            }
            let delivery = self.incoming.recv().await?;
            self.incoming.processed();
            if let Delivery::Message { channel, pattern, payload } = delivery {
                return Some(Event::Message { channel, pattern, payload });
            }
        }
    }

    fn add(&mut self, kind: SubscriptionKind, name: &[u8]) {
        let name = Bytes::copy_from_slice(name);
        let (id, sender) = (self.id, self.sender.clone());
        self.engine.with_core(|core| core.hub.subscribe(kind, name.clone(), id, sender));
        if !self.subscriptions.contains(&(kind, name.clone())) {
            self.subscriptions.push((kind, name));
        }
    }

    fn remove(&mut self, kind: SubscriptionKind, name: &[u8]) {
        self.engine.with_core(|core| core.hub.unsubscribe(kind, name, self.id));
        self.subscriptions.retain(|(other, known)| (*other, &**known) != (kind, name));
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        for (kind, name) in std::mem::take(&mut self.subscriptions) {
            self.remove(kind, &name);
        }
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber")
            .field("id", &self.id)
            .field("subscriptions", &self.subscriptions)
            .finish()
    }
}
