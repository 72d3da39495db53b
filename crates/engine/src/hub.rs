//! Pub/sub: subscribers by channel and pattern.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, error::TrySendError};

use crate::glob;

/// A message that is pushed to a connection.
#[derive(Clone, Debug)]
pub(crate) enum Delivery {
    Message {
        channel: Bytes,
        pattern: Option<Bytes>,
        payload: Bytes,
    },
    /// A command, as `MONITOR` shows it.
    MonitorLine(Bytes),
}

/// The sending end of a subscriber's bounded queue.
#[derive(Clone, Debug)]
pub(crate) struct MessageSender {
    sender: mpsc::Sender<Delivery>,
    missed: Arc<AtomicU64>,
    /// Notified when a delivery is dropped: a socket's task may be blocked in a write, and must end.
    on_loss: Option<Arc<Notify>>,
}

/// The receiving end, with the number of dropped deliveries.
#[derive(Debug)]
pub(crate) struct MessageReceiver {
    pub(crate) queue: mpsc::Receiver<Delivery>,
    pub(crate) missed: Arc<AtomicU64>,
}

pub(crate) fn message_queue(
    capacity: usize,
    on_loss: Option<Arc<Notify>>,
) -> (MessageSender, MessageReceiver) {
    let (sender, receiver) = mpsc::channel(capacity.max(1));
    let missed = Arc::new(AtomicU64::new(0));
    (
        MessageSender { sender, missed: Arc::clone(&missed), on_loss },
        MessageReceiver { queue: receiver, missed },
    )
}

impl MessageSender {
    pub(crate) fn deliver(&self, delivery: Delivery) {
        if let Err(TrySendError::Full(_)) = self.sender.try_send(delivery) {
            self.missed.fetch_add(1, Ordering::Relaxed);
            if let Some(kill) = &self.on_loss {
                kill.notify_one();
            }
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Hub {
    channels: SubscriberTable,
    patterns: SubscriberTable,
    monitors: HashMap<u64, MessageSender>,
}

type SubscriberTable = HashMap<Bytes, HashMap<u64, MessageSender>>;

/// Whether a subscription names a channel or a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscriptionKind {
    Channel,
    Pattern,
}

impl Hub {
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
                sender.deliver(Delivery::Message { channel, pattern: pattern.cloned(), payload });
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

    pub(crate) fn is_monitored(&self) -> bool {
        !self.monitors.is_empty()
    }

    pub(crate) fn send_to_monitors(&self, line: &Bytes) {
        for sender in self.monitors.values() {
            sender.deliver(Delivery::MonitorLine(line.clone()));
        }
    }
}
