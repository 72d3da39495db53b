//! The hub: the connections of this node, the channels that they are subscribed to, and how what happens reaches
//! them.
//!
//! An event reaches the subscribers of its own node at once, and the other nodes over the bus. Its number tells a
//! receiver whether anything is missing, and what is missing comes from the database. So a message of the bus is a
//! hint: it may be late, twice, or lost.

mod broker;
mod channel;
pub(crate) mod channel_name;
mod client;
mod clients;
mod control;
mod listener;
pub(crate) mod node;
pub(crate) mod purge;
pub(crate) mod transient;
mod write_queue;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use hob_database::Database;
use hob_store::Store;
use parking_lot::Mutex;

pub(crate) use broker::{Letter, Post};
pub(crate) use channel::{Activation, Joins, Room, Told};
pub(crate) use client::Peer;
pub(crate) use control::{Confirmation, Dispatch, Order, Orders};
pub(crate) use write_queue::{Limits, Next};

use crate::Error;
use crate::conversation::event::{self, Event};
use crate::database::{conversations, events, members};
use crate::hub::channel_name::Channel;
use crate::hub::node::{Load, Node};
use crate::keys::{ConversationId, Incarnation, Keys, SocketId, UserId};
use crate::session::protocol::Unsubscribed;

/// So many events are read from the database at a time.
const PAGE: u16 = 500;
/// So many questions are asked at a time where all connections are concerned.
const AT_ONCE: usize = 16;
/// The most contacts whose coming and going a feed tells.
pub(crate) const MOST_CONTACTS: u16 = 1_000;

/// The connections and channels of this node.
#[derive(Debug)]
pub(crate) struct Hub {
    store: Store,
    database: Database,
    keys: Keys,
    /// This process, for others: the bus brings back what one has sent oneself.
    origin: Incarnation,
    pub(crate) node: Node,
    pub(crate) post: Post,
    pub(crate) orders: Orders,
    rooms: Mutex<HashMap<Channel, Arc<Room>>>,
    peers: Mutex<HashMap<UserId, Vec<Arc<Peer>>>>,
    /// Sockets that other programs hold, and that this node answers for.
    held: Mutex<HashMap<UserId, HashSet<SocketId>>>,
    /// The rooms that tell of a user's coming and going.
    watchers: Mutex<HashMap<UserId, HashSet<Channel>>>,
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
            post: Post::new(keys, &origin),
            orders: Orders::new(store, keys, &origin),
            origin,
            node,
            rooms: Mutex::default(),
            peers: Mutex::default(),
            held: Mutex::default(),
            watchers: Mutex::default(),
            connections: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            deliveries: AtomicU64::new(0),
        })
    }

    pub(crate) fn load(&self) -> Load {
        Load {
            connections: self.connections.load(Ordering::Relaxed),
            users: self.peers.lock().len() as u64,
            messages: self.messages.load(Ordering::Relaxed),
            deliveries: self.deliveries.load(Ordering::Relaxed),
            ..Load::default()
        }
    }

    pub(crate) fn count_message(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        crate::metrics::message();
    }

    fn count_deliveries(&self, told: u64) {
        self.deliveries.fetch_add(told, Ordering::Relaxed);
        crate::metrics::deliveries(told);
    }

    /// The room of a channel, with this subscriber in it, pending; `None` if it is subscribed already.
    pub(crate) fn enter(
        self: &Arc<Self>,
        channel: &Channel,
        peer: &Arc<Peer>,
        joins: Joins,
    ) -> Option<Arc<Room>> {
        let mut rooms = self.rooms.lock();
        let room = rooms.entry(channel.clone()).or_insert_with(|| {
            let room = Arc::new(Room::new(channel.clone()));
            // Dropped with the room's token, which the listener holds as well.
            tokio::spawn(Arc::clone(self).listen(Arc::clone(&room)));
            room
        });
        // Within the lock: an empty room may be taken away at any time.
        room.add(peer, joins).then(|| Arc::clone(room))
    }

    /// Takes a subscriber out of a channel, and the channel away with its last one.
    pub(crate) fn exit(&self, channel: &Channel, socket: &SocketId) -> bool {
        let mut rooms = self.rooms.lock();
        let Some(room) = rooms.get(channel) else { return false };
        let was_there = room.remove(socket);
        if room.is_empty() {
            room.closed.cancel();
            let watched = room.watched();
            rooms.remove(channel);
            drop(rooms);
            self.unwatch(channel, &watched);
        }
        was_there
    }

    pub(crate) fn room(&self, channel: &Channel) -> Option<Arc<Room>> {
        self.rooms.lock().get(channel).cloned()
    }

    fn all_rooms(&self) -> Vec<Arc<Room>> {
        self.rooms.lock().values().cloned().collect()
    }

    /// Asks the database where a conversation is and who is in it, unless that is known here.
    pub(crate) async fn begin(&self, room: &Room) -> Result<(), Error> {
        if room.has_begun() {
            return Ok(());
        }
        let behind = match &room.channel {
            Channel::Conversation(id) => {
                // The number first: who joins afterwards comes as an event.
                let conversation = conversations::get(&self.database, id).await?;
                let users = members::users(&self.database, id).await?;
                room.begin(conversation.map_or(0, |conversation| conversation.sequence), users)
            }
            Channel::Feed(user) => {
                room.begin(0, members::contacts(&self.database, user, MOST_CONTACTS).await?)
            }
        };
        self.watch(&room.channel, &room.watched());
        if behind { self.catch_up(room).await } else { Ok(()) }
    }

    fn watch(&self, channel: &Channel, users: &[UserId]) {
        let mut watchers = self.watchers.lock();
        for user in users {
            watchers.entry(user.clone()).or_default().insert(channel.clone());
        }
    }

    fn unwatch(&self, channel: &Channel, users: &[UserId]) {
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

    /// Tells the subscribers of this node of an event, and of all that are missing before it.
    pub(crate) async fn tell(&self, conversation: &ConversationId, event: &Event) -> Result<(), Error> {
        let Some(room) = self.room(&Channel::Conversation(conversation.clone())) else { return Ok(()) };
        self.tell_room(&room, event).await
    }

    async fn tell_room(&self, room: &Room, event: &Event) -> Result<(), Error> {
        if !self.node.is_sure() {
            self.revalidate(room).await?;
        }
        match room.tell(event) {
            Told::To(told) => {
                self.count_deliveries(told);
                if let Some(event::Happening::Joined { user_id }) = event.membership() {
                    self.watch(&room.channel, &[user_id]);
                }
                Ok(())
            }
            Told::Gap => self.catch_up(room).await,
        }
    }

    /// Tells everything that the database has and the room's subscribers were not told.
    pub(crate) async fn catch_up(&self, room: &Room) -> Result<(), Error> {
        let Channel::Conversation(id) = &room.channel else { return Ok(()) };
        let _one_at_a_time = room.filling.lock().await;
        if !self.node.is_sure() {
            self.revalidate(room).await?;
        }
        while let Some(top) = room.top() {
            let events = events::after(&self.database, id, top, PAGE).await?;
            for event in &events {
                if let Told::To(told) = room.tell(event) {
                    self.count_deliveries(told);
                }
            }
            if events.len() < usize::from(PAGE) {
                break;
            }
        }
        Ok(())
    }

    /// Looks up in the database who may be subscribed to a room, and what its subscribers are to be spared.
    async fn revalidate(&self, room: &Room) -> Result<(), Error> {
        let Channel::Conversation(id) = &room.channel else { return Ok(()) };
        let users: HashSet<UserId> = members::users(&self.database, id).await?.into_iter().collect();
        for peer in room.peers() {
            if !users.contains(&peer.user) {
                room.remove_user(&peer.user, Unsubscribed::SERVER);
            }
            peer.read_blocks(&self.database).await?;
        }
        Ok(())
    }

    /// Looks at everything again that orders may have changed while this node had no lease.
    pub(crate) async fn revalidate_all(&self) -> Result<(), Error> {
        for peers in self.everybody().chunks(AT_ONCE) {
            let reading = peers.iter().map(|peer| peer.read_blocks(&self.database));
            futures_util::future::try_join_all(reading).await?;
        }
        for room in self.all_rooms() {
            self.revalidate(&room).await?;
            self.catch_up(&room).await?;
        }
        Ok(())
    }

    /// Carries out an order on this node.
    pub(crate) async fn obey(&self, order: &Order) -> Result<(), Error> {
        match order {
            Order::Remove { conversation, user } => {
                if let Some(room) = self.room(&Channel::Conversation(conversation.clone())) {
                    room.remove_user(user, Unsubscribed::SERVER);
                }
            }
            Order::Blocks { users } => {
                for user in users {
                    for peer in self.peers_of(user) {
                        peer.read_blocks(&self.database).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Tells something that is not kept to a conversation's subscribers, here and on the other nodes.
    pub(crate) fn whisper(&self, conversation: &ConversationId, actor: &UserId, data: &str) {
        self.whisper_here(&Channel::Conversation(conversation.clone()), actor, data);
        self.post.whisper(conversation, actor, data);
    }

    /// The same on this node only.
    pub(crate) fn whisper_here(&self, channel: &Channel, actor: &UserId, data: &str) {
        if let Some(room) = self.room(channel) {
            self.count_deliveries(room.whisper(actor, data));
        }
    }

    /// Tells the rooms that watch a user that they came or went.
    pub(crate) fn tell_presence(&self, user: &UserId, online: bool, data: &str) {
        let channels: Vec<Channel> = self.watchers.lock().get(user).into_iter().flatten().cloned().collect();
        for room in channels.iter().filter_map(|channel| self.room(channel)) {
            let told = match room.channel {
                Channel::Conversation(_) => room.tell_presence(user, online),
                Channel::Feed(_) => room.whisper(user, data),
            };
            self.count_deliveries(told);
        }
    }

    /// Rooms in which somebody's typing may be over.
    pub(crate) fn rooms_with_typists_due(&self, now: Instant) -> Vec<Arc<Room>> {
        self.all_rooms().into_iter().filter(|room| room.typists_due(now)).collect()
    }

    /// Has the subscribers of feeds come back: something that concerns them may have been missed.
    pub(crate) fn refresh_feeds(&self) {
        for room in self.all_rooms() {
            if matches!(room.channel, Channel::Feed(_)) {
                self.refresh(&room);
            }
        }
    }

    /// Ends a room's subscriptions so that clients subscribe anew, and get a fresh picture.
    pub(crate) fn refresh(&self, room: &Room) {
        for peer in room.peers() {
            self.exit(&room.channel, &peer.socket);
            peer.outlet
                .push(crate::session::protocol::unsubscribe_push(&room.channel, Unsubscribed::INSUFFICIENT));
        }
    }
}
