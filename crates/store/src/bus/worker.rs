//! The task behind a [`Bus`](crate::Bus): it keeps one subscribed connection open
//! and delivers each message to the subscribers of its channel.

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
use crate::bus::queue::EventQueue;
use crate::bus::{BusEvent, ChannelFilter};
use crate::connection::backoff::RECONNECT;
use crate::connection::cluster::Cluster;
use crate::connection::dial::{CONNECT_LIMIT, Dialer};
use crate::connection::logged::{Change as StateChange, Logged};
use crate::connection::server::Target;

/// How often an idle connection is pinged, and how long the answer may take.
const PING_EVERY: Duration = Duration::from_secs(5);
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// Where to subscribe.
#[derive(Clone)]
pub(crate) enum Source {
    Server { target: Target, dialer: Dialer },
    Cluster { cluster: Arc<Cluster>, dialer: Dialer },
}

/// The requests of subscribers to the worker.
#[derive(Debug)]
pub(crate) enum Request {
    Subscribe { id: u64, channels: Vec<ChannelFilter>, queue: Arc<EventQueue>, ready: oneshot::Sender<()> },
    Unsubscribe { id: u64 },
}

pub(crate) struct PubSubWorker {
    source: Source,
    requests: mpsc::UnboundedReceiver<Request>,
    subscribers: HashMap<u64, Subscriber>,
    listeners: HashMap<ChannelFilter, HashSet<u64>>,
    attempt: usize,
    /// Why the last connection failed or ended.
    fault: watch::Sender<String>,
}

struct Subscriber {
    channels: Vec<ChannelFilter>,
    queue: Arc<EventQueue>,
    /// Taken once the subscription is confirmed.
    ready: Option<oneshot::Sender<()>>,
}

impl Source {
    pub(crate) fn server(target: Target, dialer: Dialer) -> Self {
        Self::Server { target, dialer }
    }

    pub(crate) fn cluster(cluster: Arc<Cluster>, dialer: Dialer) -> Self {
        Self::Cluster { cluster, dialer }
    }

    /// The node to subscribe on; on a Cluster a different one at each attempt, because every node receives every
    /// message.
    async fn host(&self, attempt: usize) -> Result<Host, String> {
        match self {
            Self::Server { target, dialer } => target.resolve(dialer).await,
            Self::Cluster { cluster, .. } => {
                let hosts = cluster.hosts();
                hosts.get(attempt % hosts.len().max(1)).cloned().ok_or_else(|| "no node is known".to_owned())
            }
        }
    }

    /// Waits until there is another node to subscribe on, and returns why.
    async fn moved(&self, current: &Host) -> String {
        match self {
            Self::Server { target, dialer } => target.moved(dialer, current).await,
            Self::Cluster { .. } => std::future::pending().await,
        }
    }

    fn dialer(&self) -> &Dialer {
        match self {
            Self::Server { dialer, .. } | Self::Cluster { dialer, .. } => dialer,
        }
    }
}

impl PubSubWorker {
    pub(crate) fn new(
        source: Source,
        requests: mpsc::UnboundedReceiver<Request>,
        fault: watch::Sender<String>,
    ) -> Self {
        Self { source, requests, subscribers: HashMap::new(), listeners: HashMap::new(), attempt: 0, fault }
    }

    /// Runs until the bus is dropped.
    pub(crate) async fn run(mut self) {
        let mut backoff = RECONNECT.clone();
        let mut logged = Logged::Nothing;
        loop {
            let reason = match self.connect().await {
                Ok((host, sink, stream)) => {
                    backoff.reset();
                    if logged.connected() == StateChange::New {
                        tracing::info!(%host, "pub/sub connection restored");
                    }
                    self.announce();
                    self.serve(&host, sink, stream).await
                }
                Err(reason) => reason,
            };
            if logged.lost() == StateChange::New {
                tracing::warn!(%reason, "pub/sub connection lost");
            }
            self.fault.send_replace(reason);
            self.attempt += 1;
            self.wait(backoff.next()).await;
        }
    }

    /// A connection subscribed to the channels of all subscribers.
    async fn connect(&mut self) -> Result<(Host, PubSubSink, PubSubStream), String> {
        let host = self.source.host(self.attempt).await?;
        let channels: Vec<ChannelFilter> = self.listeners.keys().cloned().collect();
        let connecting = async {
            let (mut sink, stream) = self.source.dialer().subscriptions(&host).await?.split();
            listen(&mut sink, &channels).await?;
            Ok((sink, stream))
        };
        match timeout(CONNECT_LIMIT, connecting).await {
            Ok(Ok((sink, stream))) => Ok((host, sink, stream)),
            Ok(Err::<_, RedisError>(error)) => Err(format!("{host}: {error}")),
            Err(_) => Err(format!("{host}: no connection within {CONNECT_LIMIT:?}")),
        }
    }

    /// Confirms new subscriptions, and tells existing subscribers that they may have missed messages.
    fn announce(&mut self) {
        for subscriber in self.subscribers.values_mut() {
            match subscriber.ready.take() {
                Some(ready) => _ = ready.send(()),
                None => subscriber.queue.put(BusEvent::Missed),
            }
        }
    }

    async fn serve(&mut self, host: &Host, mut sink: PubSubSink, mut stream: PubSubStream) -> String {
        let source = self.source.clone();
        let mut moved = std::pin::pin!(source.moved(host));
        let mut ping = tokio::time::interval_at(tokio::time::Instant::now() + PING_EVERY, PING_EVERY);
        loop {
            tokio::select! {
                message = stream.next() => match message {
                    Some(message) => self.deliver(&message),
                    None => return "connection closed".to_owned(),
                },
                reason = &mut moved => return reason,
                Some(request) = self.requests.recv() => {
                    match timeout(ANSWER_LIMIT, self.carry_out(request, &mut sink)).await {
                        Ok(Ok(())) => {}
                        // An ACL may forbid a channel.
                        Ok(Err(error)) => return format!("a SUBSCRIBE or UNSUBSCRIBE failed: {error}"),
                        Err(_) => return "no answer to a SUBSCRIBE or UNSUBSCRIBE".to_owned(),
                    }
                }
                _ = ping.tick() => {
                    if !matches!(timeout(ANSWER_LIMIT, sink.ping::<redis::Value>()).await, Ok(Ok(_))) {
                        return "no answer to a PING".to_owned();
                    }
                }
            }
        }
    }

    /// Accepts requests while there is no connection.
    async fn wait(&mut self, pause: Duration) {
        let over = sleep(pause);
        tokio::pin!(over);
        loop {
            tokio::select! {
                () = &mut over => return,
                Some(request) = self.requests.recv() => drop(self.register(request)),
            }
        }
    }

    async fn carry_out(&mut self, request: Request, sink: &mut PubSubSink) -> Result<(), RedisError> {
        let id = match &request {
            Request::Subscribe { id, .. } | Request::Unsubscribe { id } => *id,
        };
        match self.register(request) {
            Change::Listen(channels) => {
                listen(sink, &channels).await?;
                if let Some(ready) =
                    self.subscribers.get_mut(&id).and_then(|subscriber| subscriber.ready.take())
                {
                    let _ = ready.send(());
                }
                Ok(())
            }
            Change::Ignore(channels) => ignore(sink, &channels).await,
        }
    }

    /// Registers a request. Returns the channels that got their first subscriber or lost their last one.
    fn register(&mut self, request: Request) -> Change {
        match request {
            Request::Subscribe { id, channels, queue, ready } => {
                let mut fresh = Vec::new();
                for filter in &channels {
                    let listeners = self.listeners.entry(filter.clone()).or_default();
                    if listeners.is_empty() {
                        fresh.push(filter.clone());
                    }
                    listeners.insert(id);
                }
                self.subscribers.insert(id, Subscriber { channels, queue, ready: Some(ready) });
                Change::Listen(fresh)
            }
            Request::Unsubscribe { id } => {
                let channels = self.subscribers.remove(&id).map(|gone| gone.channels).unwrap_or_default();
                let left = channels.into_iter().filter(|filter| {
                    let Some(listeners) = self.listeners.get_mut(filter) else {
                        return false;
                    };
                    listeners.remove(&id);
                    listeners.is_empty() && self.listeners.remove(filter).is_some()
                });
                Change::Ignore(left.collect())
            }
        }
    }

    fn deliver(&self, message: &Msg) {
        let bytes = |value: redis::RedisResult<Vec<u8>>| Bytes::from(value.unwrap_or_default());
        let channel = bytes(message.get_channel());
        let pattern = message.from_pattern().then(|| bytes(message.get_pattern()));
        let filter =
            pattern.clone().map_or_else(|| ChannelFilter::Channel(channel.clone()), ChannelFilter::Pattern);
        let Some(listeners) = self.listeners.get(&filter) else {
            return;
        };
        let payload = Bytes::copy_from_slice(message.get_payload_bytes());
        let event = BusEvent::Message { channel, pattern, payload };
        for subscriber in listeners.iter().filter_map(|id| self.subscribers.get(id)) {
            subscriber.queue.put(event.clone());
        }
    }
}

impl Drop for PubSubWorker {
    fn drop(&mut self) {
        for subscriber in self.subscribers.values() {
            subscriber.queue.close();
        }
    }
}

/// What a request changes on the connection.
enum Change {
    Listen(Vec<ChannelFilter>),
    Ignore(Vec<ChannelFilter>),
}

async fn listen(sink: &mut PubSubSink, channels: &[ChannelFilter]) -> Result<(), RedisError> {
    let (channels, patterns) = split(channels);
    if !channels.is_empty() {
        sink.subscribe(channels).await?;
    }
    if !patterns.is_empty() {
        sink.psubscribe(patterns).await?;
    }
    Ok(())
}

async fn ignore(sink: &mut PubSubSink, channels: &[ChannelFilter]) -> Result<(), RedisError> {
    let (channels, patterns) = split(channels);
    if !channels.is_empty() {
        sink.unsubscribe(channels).await?;
    }
    if !patterns.is_empty() {
        sink.punsubscribe(patterns).await?;
    }
    Ok(())
}

fn split(filters: &[ChannelFilter]) -> (Vec<&[u8]>, Vec<&[u8]>) {
    let channels = filters.iter().filter_map(|filter| match filter {
        ChannelFilter::Channel(name) => Some(&name[..]),
        ChannelFilter::Pattern(_) => None,
    });
    let patterns = filters.iter().filter_map(|filter| match filter {
        ChannelFilter::Pattern(pattern) => Some(&pattern[..]),
        ChannelFilter::Channel(_) => None,
    });
    (channels.collect(), patterns.collect())
}
