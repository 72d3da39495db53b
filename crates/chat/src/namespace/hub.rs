//! The channels of namespaces that have subscribers on this node, and delivery to them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use hob_service::Live;
use hob_store::{BusEvent, Call, ChannelFilter, Store};
use parking_lot::Mutex;

use super::channel::{Delivery, LocalChannel, Message, Subscription, SubscriptionState};
use super::{Namespace, find};
use crate::hub::Client;
use crate::keys::{Keys, NamedChannel, SocketId};
use crate::session::protocol::{ClientInfo, Publication, Push, Reply, Unsubscribe};
use crate::store::history::{HistoryPage, HistoryRange, HistoryStore, Position};
use crate::store::subscribers::SubscriberStore;
use crate::{Config, Error};

/// The most publications that a client recovers in one reply. A client that missed more loads its state again.
const MAX_RECOVERED: u32 = 300;
/// How long a new subscription waits until this node receives the messages of the channel.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before a failed read of the history is repeated.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// How often a subscription reads the history if its stream begins again at the same time.
const MAX_ATTEMPTS: usize = 3;

/// The channels of namespaces on this node.
#[derive(Debug)]
pub(crate) struct NamespaceHub {
    pub(super) store: Store,
    keys: Keys,
    pub(super) config: Live<Config>,
    pub(crate) history: HistoryStore,
    pub(crate) subscribers: SubscriberStore,
    channels: Mutex<HashMap<NamedChannel, Arc<LocalChannel>>>,
    /// The channels of each connection.
    connections: Mutex<HashMap<SocketId, HashSet<NamedChannel>>>,
}

/// A subscription that was permitted.
#[derive(Debug)]
pub(crate) struct NewSubscription<'a> {
    pub(crate) client: &'a Arc<Client>,
    pub(crate) channel: &'a NamedChannel,
    pub(crate) namespace: &'a Namespace,
    /// Where the client continues.
    pub(crate) since: Option<Position>,
    /// Whether the client asks for joins and leaves and may see them.
    pub(crate) gets_join_leave: bool,
    /// JSON that others see of the client, or nothing.
    pub(crate) chan_info: Vec<u8>,
    pub(crate) expires_s: Option<i64>,
}

/// What a subscription starts with.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) is_recoverable: bool,
    pub(crate) top: Option<Position>,
    pub(crate) recovered: bool,
    /// The publications that the client missed.
    pub(crate) publications: Vec<Publication>,
}

/// Why a client is not subscribed.
#[derive(Debug)]
pub(crate) enum SubscribeError {
    AlreadySubscribed,
    /// The client may try again.
    Interrupted,
    /// The position is not valid any more, and the client asked for an error.
    Unrecoverable,
    Failed(Error),
}

impl From<Error> for SubscribeError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl NamespaceHub {
    pub(crate) fn new(store: &Store, keys: &Keys, config: Live<Config>) -> Arc<Self> {
        Arc::new(Self {
            store: store.clone(),
            keys: keys.clone(),
            config,
            history: HistoryStore::new(store, keys),
            subscribers: SubscriberStore::new(store, keys),
            channels: Mutex::default(),
            connections: Mutex::default(),
        })
    }

    /// How many channels a connection is subscribed to.
    pub(crate) fn count_of(&self, socket: &SocketId) -> usize {
        self.connections.lock().get(socket).map_or(0, HashSet::len)
    }

    pub(crate) fn is_subscribed(&self, channel: &NamedChannel, socket: &SocketId) -> bool {
        self.channel(channel).is_some_and(|channel| channel.is_active(socket))
    }

    /// The channels with subscribers on this node, and how many each has.
    pub(crate) fn counts(&self) -> Vec<(String, u64)> {
        let channels = self.all_channels();
        channels.iter().map(|channel| (channel.name.to_string(), channel.len() as u64)).collect()
    }

    pub(super) fn channel(&self, name: &NamedChannel) -> Option<Arc<LocalChannel>> {
        self.channels.lock().get(name).cloned()
    }

    pub(super) fn all_channels(&self) -> Vec<Arc<LocalChannel>> {
        self.channels.lock().values().cloned().collect()
    }

    /// Subscribes a client. `first` makes the messages that tell the client so; no other push precedes them.
    pub(crate) async fn subscribe(
        self: &Arc<Self>,
        new: NewSubscription<'_>,
        first: impl FnOnce(Stream) -> Result<Vec<Reply>, SubscribeError>,
    ) -> Result<(), SubscribeError> {
        let (client, name) = (new.client, new.channel);
        let info = ClientInfo {
            user: client.user.to_string(),
            client: client.socket.to_string(),
            chan_info: new.chan_info.clone(),
        };
        let info: Arc<str> = serde_json::to_string(&info).map_err(Error::from)?.into();
        let channel = self.add(&new, &info).ok_or(SubscribeError::AlreadySubscribed)?;
        let subscribed = async {
            let listening =
                async { channel.listening.subscribe().wait_for(|listening| *listening).await.map(drop) };
            let listening = tokio::time::timeout(LISTEN_TIMEOUT, listening).await;
            if !matches!(listening, Ok(Ok(()))) {
                return Err(SubscribeError::Interrupted);
            }
            if new.namespace.presence {
                self.subscribers.add(name, &[(client.socket.clone(), info.to_string())]).await?;
            }
            let stream = self.read_stream(&channel, &new).await?;
            let top = stream.top.clone();
            let is_active = channel.activate(&client.socket, top.as_ref(), &first(stream)?);
            if is_active { Ok(()) } else { Err(SubscribeError::Interrupted) }
        };
        match subscribed.await {
            Ok(()) => {
                if new.namespace.join_leave {
                    self.send(vec![self.history.announce_call(name, "join", &info)]).await;
                }
                Ok(())
            }
            Err(error) => {
                if self.remove(name, &client.socket).is_some() && new.namespace.presence {
                    self.send(vec![self.subscribers.remove_call(name, &client.socket)]).await;
                }
                Err(error)
            }
        }
    }

    fn add(self: &Arc<Self>, new: &NewSubscription<'_>, info: &Arc<str>) -> Option<Arc<LocalChannel>> {
        let subscription = Subscription {
            client: Arc::clone(new.client),
            info: Arc::clone(info),
            is_positioned: new.namespace.force_recovery,
            gets_join_leave: new.gets_join_leave,
            expires_s: new.expires_s,
            state: SubscriptionState::Pending(Vec::new()),
        };
        let mut channels = self.channels.lock();
        let channel = channels.entry(new.channel.clone()).or_insert_with(|| {
            let channel = Arc::new(LocalChannel::new(new.channel.clone()));
            // Ends when `closed` is cancelled.
            tokio::spawn(Arc::clone(self).listen(Arc::clone(&channel)));
            channel
        });
        // Under the lock: an empty channel can be removed at any time.
        if !channel.add(subscription) {
            return None;
        }
        let mut connections = self.connections.lock();
        connections.entry(new.client.socket.clone()).or_default().insert(new.channel.clone());
        Some(Arc::clone(channel))
    }

    /// Reads where the stream of a channel is and what the client missed. This node already receives later publications.
    async fn read_stream(
        &self,
        channel: &LocalChannel,
        new: &NewSubscription<'_>,
    ) -> Result<Stream, SubscribeError> {
        let Some(retention) = new.namespace.retention() else { return Ok(Stream::default()) };
        let since = new.since.as_ref().filter(|_| new.namespace.force_recovery);
        for _ in 0..MAX_ATTEMPTS {
            let (range, limit) = match since {
                Some(since) => (HistoryRange::After(since.offset), MAX_RECOVERED + 1),
                None => (HistoryRange::Newest, 0),
            };
            let page = self.history.read(new.channel, retention, range, limit).await?;
            if channel.position().is_some_and(|position| position.epoch != page.top.epoch) {
                // The stream has begun again. The earlier subscribers must find out before this one counts on it.
                self.catch_up(channel).await?;
                continue;
            }
            let recovered = since.is_some_and(|since| can_recover(since, &page, self.max_recovered_bytes()));
            let publications = if recovered { page.publications } else { Vec::new() };
            let is_recoverable = new.namespace.force_recovery;
            return Ok(Stream { is_recoverable, top: Some(page.top), recovered, publications });
        }
        Err(SubscribeError::Interrupted)
    }

    /// Half of a client's queue: the rest is for pushes in the meantime.
    fn max_recovered_bytes(&self) -> usize {
        self.config.current().queue_bytes as usize / 2
    }

    /// Ends a subscription. `false` if the client is not subscribed.
    pub(crate) async fn unsubscribe(&self, channel: &NamedChannel, socket: &SocketId) -> bool {
        let Some(subscription) = self.remove(channel, socket) else { return false };
        self.send(self.leave_calls(channel, &subscription)).await;
        true
    }

    /// Ends a subscription and notifies the client.
    pub(crate) async fn end(&self, channel: &NamedChannel, client: &Client, reason: Unsubscribe) -> bool {
        let Some(local) = self.channel(channel) else { return false };
        let Some(subscription) = self.remove(channel, &client.socket) else { return false };
        local.notify_end(client, reason);
        self.send(self.leave_calls(channel, &subscription)).await;
        true
    }

    /// Ends all subscriptions of a connection.
    pub(crate) async fn disconnect(&self, socket: &SocketId) {
        let mut calls = Vec::new();
        for channel in self.channels_of(socket) {
            if let Some(subscription) = self.remove(&channel, socket) {
                calls.extend(self.leave_calls(&channel, &subscription));
            }
        }
        self.send(calls).await;
    }

    /// The channels of a connection.
    pub(crate) fn channels_of(&self, socket: &SocketId) -> Vec<NamedChannel> {
        self.connections.lock().get(socket).into_iter().flatten().cloned().collect()
    }

    /// Removes a subscription, and the channel with its last one.
    fn remove(&self, name: &NamedChannel, socket: &SocketId) -> Option<Subscription> {
        let mut channels = self.channels.lock();
        let mut connections = self.connections.lock();
        if let Some(of_connection) = connections.get_mut(socket) {
            of_connection.remove(name);
            if of_connection.is_empty() {
                connections.remove(socket);
            }
        }
        let channel = channels.get(name)?;
        let removed = channel.remove(socket);
        if channel.len() == 0 {
            channel.closed.cancel();
            channels.remove(name);
        }
        removed
    }

    /// What Redis and the other subscribers learn when a subscription has ended.
    fn leave_calls(&self, channel: &NamedChannel, subscription: &Subscription) -> Vec<Call> {
        let config = self.config.current();
        let Some((_, namespace)) = find(&config, channel.as_str()) else { return Vec::new() };
        let mut calls = Vec::new();
        if namespace.presence {
            calls.push(self.subscribers.remove_call(channel, &subscription.client.socket));
        }
        if namespace.join_leave && matches!(subscription.state, SubscriptionState::Active(_)) {
            calls.push(self.history.announce_call(channel, "leave", &subscription.info));
        }
        calls
    }

    /// Runs commands that may be lost: presence expires, and joins and leaves are only notifications.
    pub(super) async fn send(&self, calls: Vec<Call>) {
        for answer in self.store.batch(&calls).await {
            if let Err(error) = answer {
                tracing::debug!(%error, "failed to update the presence of a channel");
            }
        }
    }

    /// Sets when a subscription ends. `false` if the client is not subscribed.
    pub(crate) fn set_expiry(&self, channel: &NamedChannel, socket: &SocketId, expires_s: i64) -> bool {
        self.channel(channel).is_some_and(|channel| channel.set_expiry(socket, expires_s))
    }

    /// Listens on a channel while it has subscribers on this node.
    async fn listen(self: Arc<Self>, channel: Arc<LocalChannel>) {
        let topic = ChannelFilter::channel(self.keys.named_channel(&channel.name));
        let mut listener = self.store.bus().listen(vec![topic]);
        loop {
            // Not during an event: what it has started, such as notifying the clients, must be finished.
            let event = tokio::select! {
                event = listener.next() => event,
                () = channel.closed.cancelled() => return,
            };
            match event {
                BusEvent::Message { payload, .. } => self.handle(&channel, &payload).await,
                BusEvent::Missed => {
                    self.retry_catch_up(&channel).await;
                    channel.listening.send_replace(true);
                }
            }
        }
    }

    async fn handle(&self, channel: &LocalChannel, payload: &[u8]) {
        let Ok(message) = serde_json::from_slice::<Message<'_>>(payload) else {
            tracing::warn!(channel = %channel.name, "malformed pub/sub message ignored");
            return;
        };
        let delivered = match (message.publication, message.join, message.leave) {
            (Some(publication), ..) => match channel.deliver(message.epoch, message.offset, publication) {
                Delivery::Delivered(delivered) => delivered,
                Delivery::Known => 0,
                Delivery::Gap => return self.retry_catch_up(channel).await,
            },
            (_, Some(presence), _) => channel.announce(Push::join(&channel.name, presence)),
            (_, _, Some(presence)) => channel.announce(Push::leave(&channel.name, presence)),
            _ => 0,
        };
        crate::metrics::deliveries(delivered);
    }

    /// Delivers what the history has beyond the position of the channel. If publications are lost, subscriptions that depend on
    /// them end with a code on which clients subscribe again and recover.
    async fn catch_up(&self, channel: &LocalChannel) -> Result<(), Error> {
        let _one_at_a_time = channel.catching_up.lock().await;
        let config = self.config.current();
        let retention = find(&config, channel.name.as_str()).and_then(|(_, namespace)| namespace.retention());
        let Some(retention) = retention else { return Ok(()) };
        while let Some(position) = channel.position() {
            let range = HistoryRange::After(position.offset);
            let page = self.history.read(&channel.name, retention, range, MAX_RECOVERED).await?;
            if page.top.epoch != position.epoch || !page.covers(position.offset) {
                for client in channel.restart(page.top) {
                    self.end(&channel.name, &client, Unsubscribe::INSUFFICIENT).await;
                }
                return Ok(());
            }
            let mut offset = position.offset;
            for publication in page.publications {
                offset += 1;
                if let Delivery::Delivered(delivered) = channel.deliver(&page.top.epoch, offset, publication)
                {
                    crate::metrics::deliveries(delivered);
                }
            }
            if offset >= page.top.offset {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Catches up, retrying until Redis answers.
    async fn retry_catch_up(&self, channel: &LocalChannel) {
        while let Err(error) = self.catch_up(channel).await {
            if !error.is_reported() {
                tracing::warn!(%error, channel = %channel.name, "failed to read the history of a channel, retrying");
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY_DELAY) => {}
                () = channel.closed.cancelled() => return,
            }
        }
    }
}

/// Whether everything after a position is in the page, and fits into a reply.
fn can_recover(since: &Position, page: &HistoryPage, max_bytes: usize) -> bool {
    let bytes: usize = page.publications.iter().map(|publication| publication.data.len()).sum();
    (since.epoch.is_empty() || since.epoch == page.top.epoch)
        && page.covers(since.offset)
        && page.publications.len() <= MAX_RECOVERED as usize
        && bytes <= max_bytes
}
