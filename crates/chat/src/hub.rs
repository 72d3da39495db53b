//! The hub: the clients of this node, the channels that they are subscribed to, and delivery to them.
//!
//! An event is delivered directly to the subscribers of the same node, and over the bus to the other nodes. Messages
//! on the bus can be late, duplicated or lost: a gap in the sequence numbers shows what a node misses, and it reads that
//! from the database.

mod broker;
mod channel;
pub(crate) mod channel_name;
mod client;
mod clients;
mod control;
mod emulation;
mod frame;
mod listener;
pub(crate) mod node;
mod recent_sockets;
pub(crate) mod transient;
pub(crate) mod write_queue;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use hob_database::Database;
use hob_store::Store;
use parking_lot::Mutex;

pub(crate) use broker::{Broker, BrokerMessage};
pub(crate) use channel::{Activation, Channel, Delivery, JoinLeave};
use client::BlockChange;
pub(crate) use client::Client;
pub(crate) use control::{Confirmation, Control, ControlCommand, ControlMessage};
pub(crate) use emulation::{Acceptance, EmulatedSession, Emulation};
pub(crate) use frame::{SharedPush, SocketFrame};
pub(crate) use write_queue::{NextWrite, WriteLimits, WriteQueue};

use crate::Error;
use crate::conversation::event::{self, Event};
use crate::database::{conversations, events, members};
use crate::hub::channel_name::ChannelName;
use crate::hub::node::{Node, NodeLoad};
use crate::hub::recent_sockets::RecentSockets;
use crate::hub::transient::FeedUpdate;
use crate::keys::{ConversationId, Incarnation, Keys, SocketId, UserId};
use crate::session::protocol::{Push, Unsubscribe};
use crate::store::presence::{Presence, PresenceStore};

/// How many events are read from the database at a time.
const PAGE: u16 = 500;
/// How many clients are revalidated concurrently.
const CLIENT_BATCH: usize = 16;
/// The most contacts whose presence a feed reports.
pub(crate) const MAX_CONTACTS: u16 = 1_000;

/// The connections and channels of this node.
#[derive(Debug)]
pub(crate) struct Hub {
    store: Store,
    database: Database,
    keys: Keys,
    presences: PresenceStore,
    /// This process. The bus also delivers a node's own messages.
    origin: Incarnation,
    pub(crate) node: Node,
    pub(crate) broker: Broker,
    pub(crate) control: Control,
    channels: Mutex<HashMap<ChannelName, Arc<Channel>>>,
    clients: Mutex<HashMap<UserId, Vec<Arc<Client>>>>,
    /// Sockets of other programs that are registered on this node.
    external_sockets: Mutex<HashMap<UserId, HashSet<SocketId>>>,
    /// The version of the last presence change of each user with sockets on this node.
    versions: Mutex<HashMap<UserId, u64>>,
    pub(crate) recent_sockets: RecentSockets,
    /// The channels that report the presence of a user.
    watchers: Mutex<HashMap<UserId, HashSet<ChannelName>>>,
    connections: AtomicU64,
    messages: AtomicU64,
    deliveries: AtomicU64,
}

impl Hub {
    pub(crate) fn new(store: &Store, database: &Database, keys: &Keys, node: Node) -> Arc<Self> {
        let origin = node.incarnation();
        Arc::new(Self {
            store: store.clone(),
            database: database.clone(),
            keys: keys.clone(),
            presences: PresenceStore::new(store, keys),
            broker: Broker::new(keys, &origin),
            control: Control::new(store, keys, &origin),
            origin,
            node,
            channels: Mutex::default(),
            clients: Mutex::default(),
            external_sockets: Mutex::default(),
            versions: Mutex::default(),
            recent_sockets: RecentSockets::default(),
            watchers: Mutex::default(),
            connections: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            deliveries: AtomicU64::new(0),
        })
    }

    pub(crate) fn load(&self) -> NodeLoad {
        NodeLoad {
            connections: self.connections.load(Ordering::Relaxed),
            users: self.count_users(),
            messages: self.messages.load(Ordering::Relaxed),
            deliveries: self.deliveries.load(Ordering::Relaxed),
            ..NodeLoad::default()
        }
    }

    pub(crate) fn count_message(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        crate::metrics::message();
    }

    fn count_deliveries(&self, delivered: u64) {
        self.deliveries.fetch_add(delivered, Ordering::Relaxed);
        crate::metrics::deliveries(delivered);
    }

    /// Subscribes a client to a channel, in pending state. `None` if it is already subscribed.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        name: &ChannelName,
        client: &Arc<Client>,
        join_leave: JoinLeave,
    ) -> Option<Arc<Channel>> {
        let mut channels = self.channels.lock();
        let channel = channels.entry(name.clone()).or_insert_with(|| {
            let channel = Arc::new(Channel::new(name.clone()));
            // Ends when `closed` is cancelled.
            tokio::spawn(Arc::clone(self).listen(Arc::clone(&channel)));
            channel
        });
        // Under the lock: an empty channel can be removed at any time.
        channel.add(client, join_leave).then(|| Arc::clone(channel))
    }

    /// Removes a subscription, and the channel with its last one.
    pub(crate) fn unsubscribe(&self, name: &ChannelName, socket: &SocketId) -> bool {
        let channels = self.channels.lock();
        let Some(channel) = channels.get(name) else { return false };
        let was_subscribed = channel.remove(socket);
        drop(channels);
        self.close_if_empty(name);
        was_subscribed
    }

    /// Removes a channel without subscriptions.
    fn close_if_empty(&self, name: &ChannelName) {
        let mut channels = self.channels.lock();
        let Some(channel) = channels.get(name).filter(|channel| channel.is_empty()) else { return };
        channel.closed.cancel();
        let watched_users = channel.watched_users();
        channels.remove(name);
        drop(channels);
        self.unwatch(name, &watched_users);
    }

    pub(crate) fn channel(&self, name: &ChannelName) -> Option<Arc<Channel>> {
        self.channels.lock().get(name).cloned()
    }

    fn all_channels(&self) -> Vec<Arc<Channel>> {
        self.channels.lock().values().cloned().collect()
    }

    /// The channels with subscribers on this node, and how many each has.
    pub(crate) fn channel_counts(&self) -> Vec<(String, u64)> {
        let channels = self.all_channels();
        channels.iter().map(|channel| (channel.name.to_string(), channel.clients().len() as u64)).collect()
    }

    /// The channels of a connection.
    pub(crate) fn channels_of(&self, socket: &SocketId) -> Vec<ChannelName> {
        let channels = self.all_channels();
        channels.iter().filter(|channel| channel.has(socket)).map(|channel| channel.name.clone()).collect()
    }

    /// Loads the position and the watched users of a channel, unless it is initialized.
    pub(crate) async fn load_channel(&self, channel: &Channel) -> Result<(), Error> {
        if channel.is_initialized() {
            return Ok(());
        }
        let behind = match &channel.name {
            ChannelName::Conversation(id) => {
                // The sequence first: later joins arrive as events.
                let conversation = conversations::get(&self.database, id).await?;
                let users = members::users(&self.database, id).await?;
                channel.initialize(conversation.map_or(0, |conversation| conversation.sequence), users)
            }
            ChannelName::Feed(user) => {
                channel.initialize(0, members::contacts(&self.database, user, MAX_CONTACTS).await?)
            }
        };
        self.watch(&channel.name, &channel.watched_users());
        if behind { self.catch_up(channel).await } else { Ok(()) }
    }

    fn watch(&self, channel: &ChannelName, users: &[UserId]) {
        let mut watchers = self.watchers.lock();
        for user in users {
            watchers.entry(user.clone()).or_default().insert(channel.clone());
        }
    }

    fn unwatch(&self, channel: &ChannelName, users: &[UserId]) {
        let mut watchers = self.watchers.lock();
        for user in users {
            if let Some(channels) = watchers.get_mut(user) {
                channels.remove(channel);
                if channels.is_empty() {
                    watchers.remove(user);
                }
            }
        }
    }

    /// Delivers an event to the subscribers of this node, after those that are missing before it.
    pub(crate) async fn publish(&self, conversation: &ConversationId, event: &Event) -> Result<(), Error> {
        let Some(channel) = self.channel(&ChannelName::Conversation(conversation.clone())) else {
            return Ok(());
        };
        self.publish_to_channel(&channel, event).await
    }

    async fn publish_to_channel(&self, channel: &Channel, event: &Event) -> Result<(), Error> {
        if !self.node.is_in_sync() {
            self.revalidate(channel).await?;
        }
        match channel.publish(event) {
            Delivery::Delivered(delivered) => {
                self.follow_up(&channel.name, event, delivered);
                Ok(())
            }
            Delivery::Known => Ok(()),
            Delivery::Gap => self.catch_up(channel).await,
        }
    }

    /// Does what follows from an event that was delivered to a channel.
    fn follow_up(&self, channel: &ChannelName, event: &Event, delivered: u64) {
        self.count_deliveries(delivered);
        match event.membership_change() {
            Some(event::EventPayload::Joined { user_id }) => {
                self.watch(channel, std::slice::from_ref(&user_id));
                self.announce_member(channel, user_id);
            }
            Some(event::EventPayload::Left { user_id }) => {
                self.unwatch(channel, &[user_id]);
                self.close_if_empty(channel);
            }
            _ => {}
        }
    }

    /// Sends a join push for a new member who is online. In the background, because Redis may be slow.
    fn announce_member(&self, channel: &ChannelName, user: UserId) {
        let Some(channel) = self.channel(channel) else { return };
        let presences = self.presences.clone();
        tokio::spawn(async move {
            match presences.of(std::slice::from_ref(&user)).await {
                Ok(found) if found.iter().any(|presence| presence.online) => {
                    channel.publish_presence(&user, true);
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "failed to read the presence of a new member"),
            }
        });
    }

    /// Adds the members of a conversation to the contacts of each other, on the feeds of this node.
    pub(crate) async fn watch_contacts(&self, conversation: &ConversationId) -> Result<(), Error> {
        let users = members::users(&self.database, conversation).await?;
        for user in &users {
            let Some(feed) = self.channel(&ChannelName::Feed(user.clone())) else { continue };
            let others: Vec<UserId> = users.iter().filter(|other| *other != user).cloned().collect();
            let new = feed.watch(&others, MAX_CONTACTS.into());
            self.watch(&feed.name, &new);
            for presence in self.presences.of(&new).await?.iter().filter(|presence| presence.online) {
                let Presence { user_id, online, last_seen, version } = presence;
                let timestamp = last_seen.as_deref().unwrap_or_default();
                let update = FeedUpdate::Presence { user_id, online: *online, timestamp, version: *version };
                self.count_deliveries(feed.publish_transient(user_id, &update.json()));
            }
        }
        Ok(())
    }

    /// Delivers the events that the database has beyond the position of the channel.
    pub(crate) async fn catch_up(&self, channel: &Channel) -> Result<(), Error> {
        let ChannelName::Conversation(id) = &channel.name else { return Ok(()) };
        let _one_at_a_time = channel.catching_up.lock().await;
        if !self.node.is_in_sync() {
            self.revalidate(channel).await?;
        }
        while let Some(position) = channel.position() {
            let events = events::after(&self.database, id, position, PAGE, None).await?;
            for event in &events {
                if let Delivery::Delivered(delivered) = channel.publish(event) {
                    self.follow_up(&channel.name, event, delivered);
                }
            }
            if events.len() < usize::from(PAGE) {
                break;
            }
        }
        Ok(())
    }

    /// Reads from the database who may be subscribed to a channel, and the blocks of its subscribers.
    async fn revalidate(&self, channel: &Channel) -> Result<(), Error> {
        let ChannelName::Conversation(id) = &channel.name else { return Ok(()) };
        let users: HashSet<UserId> = members::users(&self.database, id).await?.into_iter().collect();
        for client in channel.clients() {
            if !users.contains(&client.user) {
                channel.remove_user(&client.user, Unsubscribe::SERVER);
            }
            self.reload_blocks(&client).await?;
        }
        self.close_if_empty(&channel.name);
        Ok(())
    }

    /// Reads the blocks of a client. If a user was unblocked, the client has missed events of this user, so its
    /// subscriptions end and it subscribes again.
    pub(crate) async fn reload_blocks(&self, client: &Client) -> Result<(), Error> {
        if client.reload_blocks(&self.database).await? == BlockChange::Revealed {
            for channel in self.all_channels().iter().filter(|channel| channel.has(&client.socket)) {
                self.end_subscription(channel, client);
            }
        }
        Ok(())
    }

    /// Revalidates everything that control commands may have changed while this node had no lease.
    pub(crate) async fn revalidate_all(&self) -> Result<(), Error> {
        for clients in self.all_clients().chunks(CLIENT_BATCH) {
            let reading = clients.iter().map(|client| self.reload_blocks(client));
            futures_util::future::try_join_all(reading).await?;
        }
        for channel in self.all_channels() {
            self.revalidate(&channel).await?;
            self.catch_up(&channel).await?;
        }
        Ok(())
    }

    /// Ends the subscriptions of a user to a conversation.
    pub(crate) fn remove_member(&self, conversation: &ConversationId, user: &UserId) {
        let name = ChannelName::Conversation(conversation.clone());
        if let Some(channel) = self.channel(&name) {
            channel.remove_user(user, Unsubscribe::SERVER);
            self.close_if_empty(&name);
        }
    }

    /// Ends the reports of presence between a user and former contacts, on the feeds of this node.
    pub(crate) async fn forget_contacts(&self, user: &UserId) -> Result<(), Error> {
        let contacts = members::contacts(&self.database, user, MAX_CONTACTS).await?;
        if contacts.len() >= usize::from(MAX_CONTACTS) {
            // There may be more: who is missing here can still be a contact.
            return Ok(());
        }
        if let Some(feed) = self.channel(&ChannelName::Feed(user.clone())) {
            let former = feed.watched_users().into_iter().filter(|other| !contacts.contains(other));
            let former: Vec<UserId> = former.collect();
            feed.unwatch(&former);
            self.unwatch(&feed.name, &former);
        }
        let watching: Vec<ChannelName> =
            self.watchers.lock().get(user).into_iter().flatten().cloned().collect();
        for name in watching {
            let ChannelName::Feed(other) = &name else { continue };
            if !contacts.contains(other)
                && let Some(feed) = self.channel(&name)
            {
                feed.unwatch(std::slice::from_ref(user));
                self.unwatch(&name, std::slice::from_ref(user));
            }
        }
        Ok(())
    }

    /// Reads the blocks of these users.
    pub(crate) async fn reload_blocks_of(&self, users: &[UserId]) -> Result<(), Error> {
        for client in users.iter().flat_map(|user| self.clients_of(user)) {
            self.reload_blocks(&client).await?;
        }
        Ok(())
    }

    /// Publishes to a conversation without storing, on this node and on the others.
    pub(crate) fn publish_transient(&self, conversation: &ConversationId, actor: &UserId, data: &str) {
        self.publish_transient_here(&ChannelName::Conversation(conversation.clone()), actor, data);
        self.broker.publish_transient(conversation, actor, data);
    }

    /// Publishes that a user is typing or has stopped, to the other users on this node and on the others.
    pub(crate) fn publish_typing(&self, conversation: &ConversationId, typist: &UserId, data: &str) {
        if let Some(channel) = self.channel(&ChannelName::Conversation(conversation.clone())) {
            self.count_deliveries(channel.publish_typing(typist, data));
        }
        self.broker.publish_transient(conversation, typist, data);
    }

    /// Publishes to a channel without storing, on this node only.
    pub(crate) fn publish_transient_here(&self, channel: &ChannelName, actor: &UserId, data: &str) {
        if let Some(channel) = self.channel(channel) {
            self.count_deliveries(channel.publish_transient(actor, data));
        }
    }

    /// Publishes to the channels that watch a user that the user went online or offline.
    pub(crate) fn publish_presence(&self, user: &UserId, online: bool, data: &str) {
        let channels: Vec<ChannelName> =
            self.watchers.lock().get(user).into_iter().flatten().cloned().collect();
        for channel in channels.iter().filter_map(|channel| self.channel(channel)) {
            let delivered = match channel.name {
                ChannelName::Conversation(_) => channel.publish_presence(user, online),
                ChannelName::Feed(_) => channel.publish_transient(user, data),
            };
            self.count_deliveries(delivered);
        }
    }

    /// The channels in which someone's typing state may have expired.
    pub(crate) fn channels_with_expired_typing(&self, now: Instant) -> Vec<Arc<Channel>> {
        self.all_channels().into_iter().filter(|channel| channel.has_expired_typing(now)).collect()
    }

    /// Makes clients subscribe to their feeds again, since updates may have been missed.
    pub(crate) fn refresh_feeds(&self) {
        for channel in self.all_channels() {
            if matches!(channel.name, ChannelName::Feed(_)) {
                self.refresh(&channel);
            }
        }
    }

    /// Ends the subscriptions of a channel with a code on which clients subscribe again and get a new snapshot.
    pub(crate) fn refresh(&self, channel: &Channel) {
        for client in channel.clients() {
            self.end_subscription(channel, &client);
        }
    }

    fn end_subscription(&self, channel: &Channel, client: &Client) {
        self.unsubscribe(&channel.name, &client.socket);
        client.queue.push(Push::unsubscribe(&channel.name, Unsubscribe::INSUFFICIENT));
    }
}
