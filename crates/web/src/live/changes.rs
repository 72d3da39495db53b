//! Notifies open pages on all nodes that the data of a topic has changed.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hob_service::{ServiceContext, Task};
use hob_store::{BusEvent, ChannelFilter};
use tokio::sync::Notify;

use super::feed::Feed;
use hob_service::keys::Keys;

/// The shortest time between two notifications, to spare the bus and the browsers.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(250);

/// If more topics than this are pending, one notification for all topics is sent instead.
const MAX_PENDING: usize = 256;
const MAX_TOPIC_BYTES: usize = 60;

/// Notifies open pages on every node of changes. Clones share the same handle.
#[derive(Clone)]
pub struct Changes {
    inner: Arc<Inner>,
}

struct Inner {
    context: ServiceContext,
    channel: String,
    feed: Feed,
    pending: Mutex<BTreeSet<String>>,
    wake: Notify,
}

impl Changes {
    pub(crate) fn new(context: &ServiceContext, keys: &Keys) -> Self {
        Self::on(context, keys.changed_channel())
    }

    /// For a program without pages: notifications are dropped.
    #[must_use]
    pub fn detached(context: &ServiceContext) -> Self {
        Self::on(context, String::new())
    }

    fn on(context: &ServiceContext, channel: String) -> Self {
        Self {
            inner: Arc::new(Inner {
                context: context.clone(),
                channel,
                feed: Feed::new(),
                pending: Mutex::default(),
                wake: Notify::new(),
            }),
        }
    }

    pub(crate) fn start(&self) {
        let tasks = &self.inner.context.tasks;
        let (publisher, listener) = (self.clone(), self.clone());
        tasks.spawn("change publisher", move |task| publisher.clone().publish_pending(task));
        tasks.spawn("change listener", move |task| listener.clone().receive_changes(task));
    }

    /// Notifies pages that a topic has changed: `uptime`, `uptime.monitors`. Returns at once; calls in a short time are
    /// combined. A topic starts with the name of its service and has letters, digits, `.`, `_` and `-`.
    pub fn notify(&self, topic: &str) {
        if !is_valid_topic(topic) {
            tracing::warn!(topic, "invalid topic name, browsers not notified of a change");
            return;
        }
        let mut pending = self.inner.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.len() < MAX_PENDING {
            pending.insert(topic.to_owned());
        } else {
            *pending = BTreeSet::from([ALL_TOPICS.to_owned()]);
        }
        self.inner.wake.notify_one();
    }

    /// The number of open pages on this node.
    #[must_use]
    pub fn listeners(&self) -> usize {
        self.inner.feed.clients()
    }

    pub(crate) fn feed(&self) -> &Feed {
        &self.inner.feed
    }

    /// Publishes pending topics, to the pages of this node first, then to other nodes.
    async fn publish_pending(self, task: Task) {
        let inner = &self.inner;
        loop {
            tokio::select! {
                () = inner.wake.notified() => {}
                () = task.stop_requested() => return,
            }
            let topics = std::mem::take(&mut *inner.pending.lock().unwrap_or_else(PoisonError::into_inner));
            for topic in &topics {
                self.notify_pages(topic);
            }
            for topic in topics {
                let message = format!("{} {topic}", inner.context.node);
                // A lost notification is harmless: the next change repeats it.
                if let Err(error) = inner.context.store.bus().publish(&inner.channel, message).await {
                    tracing::debug!(%error, "failed to publish a change to other nodes");
                    break;
                }
            }
            task.heartbeat();
            if !task.pause(PUBLISH_INTERVAL).await {
                return;
            }
        }
    }

    async fn receive_changes(self, task: Task) {
        tokio::select! {
            () = self.forward_changes(&task) => {}
            () = task.stop_requested() => {}
        }
    }

    /// Forwards notifications of other nodes to the pages of this node.
    async fn forward_changes(&self, task: &Task) {
        let channel = ChannelFilter::channel(&self.inner.channel);
        let mut listener = self.inner.context.store.bus().listen(vec![channel]);
        // The first event only reports that the subscription exists. A reset at this point would make pages reload
        // without a change.
        listener.next().await;
        loop {
            task.heartbeat();
            match listener.next().await {
                BusEvent::Message { payload, .. } => self.receive(&payload),
                BusEvent::Missed => self.notify_pages(ALL_TOPICS),
            }
        }
    }

    fn receive(&self, payload: &[u8]) {
        let Some((node, topic)) = std::str::from_utf8(payload).ok().and_then(|text| text.split_once(' '))
        else {
            return;
        };
        let ours = node == self.inner.context.node.as_str();
        if !ours && (topic == ALL_TOPICS || is_valid_topic(topic)) {
            self.notify_pages(topic);
        }
    }

    fn notify_pages(&self, topic: &str) {
        match topic {
            ALL_TOPICS => self.inner.feed.reset(),
            topic => self.inner.feed.send(topic, "changed", topic),
        }
    }
}

/// All topics.
const ALL_TOPICS: &str = "*";

pub(super) fn is_valid_topic(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=MAX_TOPIC_BYTES).contains(&text.len()) && text.bytes().all(allowed)
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("feed", &self.inner.feed).finish_non_exhaustive()
    }
}
