//! The word that pages have something new to show, passed on to every node.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hob_service::{ServiceContext, Task};
use hob_store::{BusEvent, ChannelFilter};
use tokio::sync::Notify;

use super::feed::Feed;
use hob_service::keys::Keys;

/// A topic is told at most so often: who looks at a page sees no difference, and the bus and the browsers rest.
const EVERY: Duration = Duration::from_millis(250);

/// When the store is away, the bus is tried again after this long.
const AGAIN: Duration = Duration::from_secs(1);

/// More topics at once than this are told as one: everything.
const MOST_WAITING: usize = 256;
const LONGEST_TOPIC: usize = 60;

/// Tells open pages, on every node, that something changed. Clones are handles to the same.
#[derive(Clone)]
pub struct Changes {
    inner: Arc<Inner>,
}

struct Inner {
    context: ServiceContext,
    channel: String,
    feed: Feed,
    waiting: Mutex<BTreeSet<String>>,
    wake: Notify,
}

impl Changes {
    pub(crate) fn new(context: &ServiceContext, keys: &Keys) -> Self {
        Self::on(context, keys.changed_channel())
    }

    /// For a program without pages: nothing is passed on.
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
                waiting: Mutex::default(),
                wake: Notify::new(),
            }),
        }
    }

    pub(crate) fn start(&self) {
        let tasks = &self.inner.context.tasks;
        let (teller, listener) = (self.clone(), self.clone());
        tasks.spawn("tell changes", move |task| teller.clone().tell_on(task));
        tasks.spawn("hear changes", move |task| listener.clone().listen(task));
    }

    /// Says that what pages show of a topic has changed: `uptime`, `uptime.monitors`. Returns at once; many calls in a
    /// short time are one. A topic begins with the name of its service, and has letters, digits, `.`, `_` and `-`.
    pub fn tell(&self, topic: &str) {
        if !is_topic(topic) {
            tracing::warn!(topic, "not a topic of live updates");
            return;
        }
        let mut waiting = self.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < MOST_WAITING {
            waiting.insert(topic.to_owned());
        } else {
            *waiting = BTreeSet::from([EVERYTHING.to_owned()]);
        }
        self.inner.wake.notify_one();
    }

    /// How many open pages listen on this node.
    #[must_use]
    pub fn listeners(&self) -> usize {
        self.inner.feed.clients()
    }

    pub(crate) fn feed(&self) -> &Feed {
        &self.inner.feed
    }

    /// Tells what waits, here first, then to the other nodes.
    async fn tell_on(self, task: Task) {
        let inner = &self.inner;
        loop {
            tokio::select! {
                () = inner.wake.notified() => {}
                () = task.stopped() => return,
            }
            let topics = std::mem::take(&mut *inner.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            for topic in &topics {
                self.show(topic);
            }
            for topic in topics {
                let message = format!("{} {topic}", inner.context.node);
                // A hint that is lost is no loss: the next change tells the same.
                if let Err(error) = inner.context.store.bus().publish(&inner.channel, message).await {
                    tracing::debug!(%error, "could not tell the other nodes of a change");
                    break;
                }
            }
            task.beat();
            if !task.pause(EVERY).await {
                return;
            }
        }
    }

    /// Shows what other nodes tell.
    async fn listen(self, task: Task) {
        let bus = self.inner.context.store.bus();
        while !task.stopping() {
            let mut heard = match bus.subscribe(&[ChannelFilter::channel(&self.inner.channel)]).await {
                Ok(heard) => heard,
                Err(_) if task.pause(AGAIN).await => continue,
                Err(_) => return,
            };
            task.beat();
            loop {
                let event = tokio::select! {
                    event = heard.next() => event,
                    () = task.stopped() => return,
                };
                match event {
                    Some(BusEvent::Message { payload, .. }) => self.hear(&payload),
                    Some(BusEvent::Missed) => self.show(EVERYTHING),
                    None => break,
                }
                task.beat();
            }
        }
    }

    fn hear(&self, payload: &[u8]) {
        let Some((node, topic)) = std::str::from_utf8(payload).ok().and_then(|text| text.split_once(' '))
        else {
            return;
        };
        let ours = node == self.inner.context.node.as_str();
        if !ours && (topic == EVERYTHING || is_topic(topic)) {
            self.show(topic);
        }
    }

    fn show(&self, topic: &str) {
        match topic {
            EVERYTHING => self.inner.feed.reset(),
            topic => self.inner.feed.send(topic, "changed", topic),
        }
    }
}

/// Stands for all topics.
const EVERYTHING: &str = "*";

pub(super) fn is_topic(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=LONGEST_TOPIC).contains(&text.len()) && text.bytes().all(allowed)
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("feed", &self.inner.feed).finish_non_exhaustive()
    }
}
