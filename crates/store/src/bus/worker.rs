//! The task behind a [`Bus`](crate::Bus): one subscribing connection, kept up for ever, whose messages go to
//! the subscribers that asked for them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use redis::{Msg, RedisError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::address::Host;
use crate::backoff::Backoff;
use crate::bus::{BusEvent, Topic};
use crate::cluster::Cluster;
use crate::dial::{CONNECT_LIMIT, Dialer};
use crate::link::Target;
use crate::mailbox::Mailbox;

/// How often a silent connection is asked whether it is still there, and how long it may think about it.
const PING_EVERY: Duration = Duration::from_secs(5);
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// Where to subscribe.
#[derive(Clone)]
pub(crate) enum Source {
    Server { target: Target, dialer: Dialer },
    Cluster { cluster: Arc<Cluster>, dialer: Dialer },
}

/// What subscribers ask of the switchboard.
#[derive(Debug)]
pub(crate) enum Order {
    Subscribe { id: u64, topics: Vec<Topic>, mailbox: Arc<Mailbox>, ready: oneshot::Sender<()> },
    Unsubscribe { id: u64 },
}

pub(crate) struct Switchboard {
    source: Source,
    orders: mpsc::UnboundedReceiver<Order>,
    subscribers: HashMap<u64, Subscriber>,
    listeners: HashMap<Topic, HashSet<u64>>,
    attempt: usize,
    /// Why there was no connection the last time.
    trouble: watch::Sender<String>,
}

struct Subscriber {
    topics: Vec<Topic>,
    mailbox: Arc<Mailbox>,
    /// Taken once the subscriber has heard that it is listening.
    ready: Option<oneshot::Sender<()>>,
}

impl Source {
    pub(crate) fn server(target: Target, dialer: Dialer) -> Self {
        Self::Server { target, dialer }
    }

    pub(crate) fn cluster(cluster: Arc<Cluster>, dialer: Dialer) -> Self {
        Self::Cluster { cluster, dialer }
    }

    /// The node to subscribe on; on a Cluster another one at each attempt, since all hear every message.
    async fn host(&self, attempt: usize) -> Result<Host, String> {
        match self {
            Self::Server { target, dialer } => target.resolve(dialer).await,
            Self::Cluster { cluster, .. } => {
                let hosts = cluster.hosts();
                hosts.get(attempt % hosts.len().max(1)).cloned().ok_or_else(|| "no node is known".to_owned())
            }
        }
    }

    fn dialer(&self) -> &Dialer {
        match self {
            Self::Server { dialer, .. } | Self::Cluster { dialer, .. } => dialer,
        }
    }
}

impl Switchboard {
    pub(crate) fn new(
        source: Source,
        orders: mpsc::UnboundedReceiver<Order>,
        trouble: watch::Sender<String>,
    ) -> Self {
        Self { source, orders, subscribers: HashMap::new(), listeners: HashMap::new(), attempt: 0, trouble }
    }

    /// Runs until the bus is dropped.
    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            let reason = match self.connect().await {
                Ok((sink, stream)) => {
                    backoff.reset();
                    self.announce();
                    self.serve(sink, stream).await.to_owned()
                }
                Err(reason) => reason,
            };
            tracing::warn!(%reason, "bus connection down");
            self.trouble.send_replace(reason);
            self.attempt += 1;
            self.wait(backoff.next()).await;
        }
    }

    /// A connection that listens to everything that anybody asked for so far.
    async fn connect(&mut self) -> Result<(PubSubSink, PubSubStream), String> {
        let host = self.source.host(self.attempt).await?;
        let topics: Vec<Topic> = self.listeners.keys().cloned().collect();
        let connecting = async {
            let (mut sink, stream) = self.source.dialer().subscriptions(&host).await?.split();
            listen(&mut sink, &topics).await?;
            Ok((sink, stream))
        };
        match timeout(CONNECT_LIMIT, connecting).await {
            Ok(connected) => connected.map_err(|error: RedisError| format!("{host}: {error}")),
            Err(_) => Err(format!("{host}: no connection within {CONNECT_LIMIT:?}")),
        }
    }

    /// Tells new subscribers that they are listening, and old ones that they were not for a while.
    fn announce(&mut self) {
        for subscriber in self.subscribers.values_mut() {
            match subscriber.ready.take() {
                Some(ready) => _ = ready.send(()),
                None => subscriber.mailbox.put(BusEvent::Missed),
            }
        }
    }

    async fn serve(&mut self, mut sink: PubSubSink, mut stream: PubSubStream) -> &'static str {
        let mut ping = tokio::time::interval_at(tokio::time::Instant::now() + PING_EVERY, PING_EVERY);
        loop {
            tokio::select! {
                message = stream.next() => match message {
                    Some(message) => self.deliver(&message),
                    None => return "connection closed",
                },
                Some(order) = self.orders.recv() => {
                    let carried = timeout(ANSWER_LIMIT, self.carry_out(order, &mut sink)).await;
                    if !matches!(carried, Ok(Ok(()))) {
                        return "a subscription got no answer";
                    }
                }
                _ = ping.tick() => {
                    if !matches!(timeout(ANSWER_LIMIT, sink.ping::<redis::Value>()).await, Ok(Ok(_))) {
                        return "no answer to a PING";
                    }
                }
            }
        }
    }

    /// Takes orders while there is no connection.
    async fn wait(&mut self, pause: Duration) {
        let over = sleep(pause);
        tokio::pin!(over);
        loop {
            tokio::select! {
                () = &mut over => return,
                Some(order) = self.orders.recv() => drop(self.register(order)),
            }
        }
    }

    async fn carry_out(&mut self, order: Order, sink: &mut PubSubSink) -> Result<(), RedisError> {
        let id = match &order {
            Order::Subscribe { id, .. } | Order::Unsubscribe { id } => *id,
        };
        match self.register(order) {
            Change::Listen(topics) => {
                listen(sink, &topics).await?;
                if let Some(ready) =
                    self.subscribers.get_mut(&id).and_then(|subscriber| subscriber.ready.take())
                {
                    let _ = ready.send(());
                }
                Ok(())
            }
            Change::Ignore(topics) => ignore(sink, &topics).await,
        }
    }

    /// Notes an order; returns the topics that this makes the first, or leaves without, a listener.
    fn register(&mut self, order: Order) -> Change {
        match order {
            Order::Subscribe { id, topics, mailbox, ready } => {
                let mut fresh = Vec::new();
                for topic in &topics {
                    let listeners = self.listeners.entry(topic.clone()).or_default();
                    if listeners.is_empty() {
                        fresh.push(topic.clone());
                    }
                    listeners.insert(id);
                }
                self.subscribers.insert(id, Subscriber { topics, mailbox, ready: Some(ready) });
                Change::Listen(fresh)
            }
            Order::Unsubscribe { id } => {
                let topics = self.subscribers.remove(&id).map(|gone| gone.topics).unwrap_or_default();
                let left = topics.into_iter().filter(|topic| {
                    let Some(listeners) = self.listeners.get_mut(topic) else {
                        return false;
                    };
                    listeners.remove(&id);
                    listeners.is_empty() && self.listeners.remove(topic).is_some()
                });
                Change::Ignore(left.collect())
            }
        }
    }

    fn deliver(&self, message: &Msg) {
        let bytes = |value: redis::RedisResult<Vec<u8>>| Bytes::from(value.unwrap_or_default());
        let channel = bytes(message.get_channel());
        let pattern = message.from_pattern().then(|| bytes(message.get_pattern()));
        let topic = pattern.clone().map_or_else(|| Topic::Channel(channel.clone()), Topic::Pattern);
        let Some(listeners) = self.listeners.get(&topic) else {
            return;
        };
        let payload = Bytes::copy_from_slice(message.get_payload_bytes());
        let event = BusEvent::Message { channel, pattern, payload };
        for subscriber in listeners.iter().filter_map(|id| self.subscribers.get(id)) {
            subscriber.mailbox.put(event.clone());
        }
    }
}

impl Drop for Switchboard {
    fn drop(&mut self) {
        for subscriber in self.subscribers.values() {
            subscriber.mailbox.close();
        }
    }
}

/// What an order means for the connection.
enum Change {
    Listen(Vec<Topic>),
    Ignore(Vec<Topic>),
}

async fn listen(sink: &mut PubSubSink, topics: &[Topic]) -> Result<(), RedisError> {
    let (channels, patterns) = split(topics);
    if !channels.is_empty() {
        sink.subscribe(channels).await?;
    }
    if !patterns.is_empty() {
        sink.psubscribe(patterns).await?;
    }
    Ok(())
}

async fn ignore(sink: &mut PubSubSink, topics: &[Topic]) -> Result<(), RedisError> {
    let (channels, patterns) = split(topics);
    if !channels.is_empty() {
        sink.unsubscribe(channels).await?;
    }
    if !patterns.is_empty() {
        sink.punsubscribe(patterns).await?;
    }
    Ok(())
}

fn split(topics: &[Topic]) -> (Vec<&[u8]>, Vec<&[u8]>) {
    let channels = topics.iter().filter_map(|topic| match topic {
        Topic::Channel(name) => Some(&name[..]),
        Topic::Pattern(_) => None,
    });
    let patterns = topics.iter().filter_map(|topic| match topic {
        Topic::Pattern(pattern) => Some(&pattern[..]),
        Topic::Channel(_) => None,
    });
    (channels.collect(), patterns.collect())
}
