//! Pub/sub: subscribers by channel and pattern.

mod queue;

pub(crate) use queue::{Delivery, MessageReceiver, MessageSender};

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::config::SubscriberLimits;
use crate::glob;

#[derive(Debug, Default)]
pub(crate) struct Hub {
    channels: SubscriberTable,
    patterns: SubscriberTable,
    monitors: HashMap<u64, MessageSender>,
    /// Bytes of all messages that subscribers have not processed yet. A message counts once for each of its subscribers.
    buffered_bytes: Arc<AtomicUsize>,
    /// The time of the current command.
    pub(crate) now_us: u64,
}

type SubscriberTable = HashMap<Bytes, HashMap<u64, MessageSender>>;

/// Whether a subscription names a channel or a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscriptionKind {
    Channel,
    Pattern,
}

impl Hub {
    /// A queue for a new subscriber. `on_loss` is notified when a message is dropped.
    pub(crate) fn message_queue(
        &self,
        limits: SubscriberLimits,
        on_loss: Option<Arc<Notify>>,
    ) -> (MessageSender, MessageReceiver) {
        queue::message_queue(limits, &self.buffered_bytes, on_loss)
    }

    pub(crate) fn buffered_bytes(&self) -> usize {
        self.buffered_bytes.load(Ordering::Relaxed)
    }

    fn table(&mut self, kind: SubscriptionKind) -> &mut SubscriberTable {
        match kind {
            SubscriptionKind::Channel => &mut self.channels,
            SubscriptionKind::Pattern => &mut self.patterns,
        }
    }

    pub(crate) fn subscribe(
        &mut self,
        kind: SubscriptionKind,
        name: Bytes,
        subscriber: u64,
        sender: MessageSender,
    ) {
        self.table(kind).entry(name).or_default().insert(subscriber, sender);
    }

    pub(crate) fn unsubscribe(&mut self, kind: SubscriptionKind, name: &[u8], subscriber: u64) {
        let table = self.table(kind);
        if let Some(subscribers) = table.get_mut(name) {
            subscribers.remove(&subscriber);
            if subscribers.is_empty() {
                table.remove(name);
            }
        }
    }

    /// Delivers a message; returns the number of subscribers.
    pub(crate) fn publish(&self, channel: &[u8], payload: &[u8]) -> usize {
        let direct = self.channels.get(channel);
        let by_pattern = self.patterns.iter().filter(|(pattern, _)| glob::matches(pattern, channel));
        let mut shared: Option<(Bytes, Bytes)> = None;
        let mut count = 0;
        let all = direct.map(|to| (None, to)).into_iter().chain(by_pattern.map(|(p, to)| (Some(p), to)));
        for (pattern, subscribers) in all {
            for sender in subscribers.values() {
                let copy = || (Bytes::copy_from_slice(channel), Bytes::copy_from_slice(payload));
                let (channel, payload) = shared.get_or_insert_with(copy).clone();
                let delivery = Delivery::Message { channel, pattern: pattern.cloned(), payload };
                sender.deliver(delivery, self.now_us);
                count += 1;
            }
        }
        count
    }

    pub(crate) fn channels(&self) -> impl Iterator<Item = &Bytes> {
        self.channels.keys()
    }

    pub(crate) fn subscribers(&self, channel: &[u8]) -> usize {
        self.channels.get(channel).map_or(0, HashMap::len)
    }

    pub(crate) fn patterns(&self) -> usize {
        self.patterns.len()
    }

    pub(crate) fn add_monitor(&mut self, subscriber: u64, sender: MessageSender) {
        self.monitors.insert(subscriber, sender);
    }

    pub(crate) fn remove_monitor(&mut self, subscriber: u64) {
        self.monitors.remove(&subscriber);
    }

    pub(crate) fn is_monitor(&self, subscriber: u64) -> bool {
        self.monitors.contains_key(&subscriber)
    }

    pub(crate) fn is_monitored(&self) -> bool {
        !self.monitors.is_empty()
    }

    pub(crate) fn send_to_monitors(&self, line: &Bytes) {
        for sender in self.monitors.values() {
            sender.deliver(Delivery::MonitorLine(line.clone()), self.now_us);
        }
    }
}
