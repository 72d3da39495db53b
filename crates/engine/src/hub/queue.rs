//! The queue of one subscriber, bounded by the number of its messages and by their bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::sync::mpsc;

use crate::config::SubscriberLimits;

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

impl Delivery {
    fn bytes(&self) -> usize {
        let text = match self {
            Delivery::Message { channel, pattern, payload } => {
                channel.len() + pattern.as_ref().map_or(0, Bytes::len) + payload.len()
            }
            Delivery::MonitorLine(line) => line.len(),
        };
        size_of::<Delivery>() + text
    }
}

/// The sending end of a subscriber's queue.
#[derive(Clone, Debug)]
pub(crate) struct MessageSender {
    sender: mpsc::Sender<Delivery>,
    backlog: Arc<Backlog>,
    /// Notified when a delivery is dropped: a socket's task may be blocked in a write, and must end.
    on_loss: Option<Arc<Notify>>,
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct MessageReceiver {
    queue: mpsc::Receiver<Delivery>,
    backlog: Arc<Backlog>,
    /// Bytes of deliveries that were received, but are not processed yet.
    in_hand: usize,
}

/// What a subscriber has not processed yet, and what it has lost.
#[derive(Debug)]
struct Backlog {
    limits: SubscriberLimits,
    bytes: AtomicUsize,
    /// Since when `bytes` exceeds the soft limit; 0: it does not.
    over_soft_since_us: AtomicU64,
    missed: AtomicU64,
    /// The bytes of all subscribers.
    total: Arc<AtomicUsize>,
}

pub(super) fn message_queue(
    limits: SubscriberLimits,
    total: &Arc<AtomicUsize>,
    on_loss: Option<Arc<Notify>>,
) -> (MessageSender, MessageReceiver) {
    let (sender, queue) = mpsc::channel(limits.messages.max(1));
    let backlog = Arc::new(Backlog {
        limits,
        bytes: AtomicUsize::new(0),
        over_soft_since_us: AtomicU64::new(0),
        missed: AtomicU64::new(0),
        total: Arc::clone(total),
    });
    let receiver = MessageReceiver { queue, backlog: Arc::clone(&backlog), in_hand: 0 };
    (MessageSender { sender, backlog, on_loss }, receiver)
}

impl MessageSender {
    /// Queues a delivery, or drops and counts it if the subscriber is too slow.
    pub(super) fn deliver(&self, delivery: Delivery, now_us: u64) {
        let bytes = delivery.bytes();
        if self.sender.is_closed() {
            return;
        }
        if self.backlog.admit(bytes, now_us) {
            if self.sender.try_send(delivery).is_ok() {
                return;
            }
            self.backlog.free(bytes);
        }
        self.backlog.missed.fetch_add(1, Relaxed);
        if let Some(kill) = &self.on_loss {
            kill.notify_one();
        }
    }
}

impl MessageReceiver {
    /// A queue into which nothing is ever sent.
    pub(crate) fn closed() -> MessageReceiver {
        message_queue(SubscriberLimits::default(), &Arc::default(), None).1
    }

    pub(crate) async fn recv(&mut self) -> Option<Delivery> {
        let delivery = self.queue.recv().await?;
        self.in_hand += delivery.bytes();
        Some(delivery)
    }

    pub(crate) fn try_recv(&mut self) -> Option<Delivery> {
        let delivery = self.queue.try_recv().ok()?;
        self.in_hand += delivery.bytes();
        Some(delivery)
    }

    /// Frees what was received: it is processed.
    pub(crate) fn processed(&mut self) {
        self.backlog.free(std::mem::take(&mut self.in_hand));
    }

    /// Whether a delivery was dropped.
    pub(crate) fn has_missed(&self) -> bool {
        self.backlog.missed.load(Relaxed) > 0
    }

    /// The number of dropped deliveries since the last call.
    pub(crate) fn take_missed(&self) -> u64 {
        self.backlog.missed.swap(0, Relaxed)
    }
}

impl Backlog {
    /// Adds the bytes of a delivery, unless a limit is exceeded. Only one thread at a time adds: it has locked the hub.
    fn admit(&self, bytes: usize, now_us: u64) -> bool {
        let before = self.bytes.load(Relaxed);
        let after = before + bytes;
        if before <= self.limits.soft_bytes {
            self.over_soft_since_us.store(0, Relaxed);
        }
        if after > self.limits.hard_bytes {
            return false;
        }
        if after > self.limits.soft_bytes {
            let since = self.over_soft_since_us.load(Relaxed);
            if since == 0 {
                self.over_soft_since_us.store(now_us, Relaxed);
            } else if u128::from(now_us.saturating_sub(since)) > self.limits.soft_duration.as_micros() {
                return false;
            }
        }
        self.bytes.fetch_add(bytes, Relaxed);
        self.total.fetch_add(bytes, Relaxed);
        true
    }

    fn free(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
        self.total.fetch_sub(bytes, Relaxed);
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.total.fetch_sub(*self.bytes.get_mut(), Relaxed);
    }
}
