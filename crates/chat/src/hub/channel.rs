//! A channel on this node: those who are subscribed here, how far they were told, and the newest events.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use crate::conversation::event::{Event, EventPayload};
use crate::hub::channel_name::ChannelName;
use crate::keys::{SocketId, UserId};
use crate::session::protocol::{self, Publication};

/// So many events are kept at hand, for those who come back soon.
const MAX_RECENT_EVENTS: usize = 64;

/// A channel with subscribers on this node.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) name: ChannelName,
    state: Mutex<ChannelState>,
    /// One at a time fills a gap.
    pub(crate) catching_up: tokio::sync::Mutex<()>,
    /// Ends the room's ear on the bus.
    pub(crate) closed: CancellationToken,
}

#[derive(Debug, Default)]
struct ChannelState {
    /// The last event that subscribers were told; `None` until the database was asked.
    position: Option<u64>,
    /// The last event that anybody spoke of.
    latest_known: u64,
    recent: VecDeque<Event>,
    subscribers: HashMap<SocketId, Subscription>,
    /// The conversation's members, or the feed's contacts: whose coming and going is told here.
    watched_users: HashSet<UserId>,
    typists: HashMap<UserId, Instant>,
}

#[derive(Debug)]
struct Subscription {
    client: Arc<Client>,
    state: SubscriptionState,
    join_leave: JoinLeave,
}

/// Whether a subscriber may be told things yet. It is added before its permission is looked up, so that it
/// can be taken away again meanwhile.
#[derive(Debug)]
enum SubscriptionState {
    /// What was said in passing meanwhile waits until it is active.
    Pending(Vec<Bytes>),
    Active,
}

/// So much is kept for a pending subscriber.
const MAX_PENDING: usize = 256;

/// Whether a subscriber wants to hear of others who come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinLeave {
    Enabled,
    Disabled,
}

/// What telling an event came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// To so many subscribers.
    Delivered(u64),
    /// Events before it are missing.
    Gap,
}

/// What making a subscriber active came to.
#[derive(Debug)]
pub(crate) enum Activation {
    /// From now on it is told everything after `top`.
    Active,
    /// It must first be given the events after its position that are not at hand.
    NeedsHistory,
    /// Its position is ahead of everything there is.
    Ahead,
    /// It was taken away meanwhile.
    Revoked,
}

impl Channel {
    pub(crate) fn new(name: ChannelName) -> Self {
        Self {
            name,
            state: Mutex::default(),
            catching_up: tokio::sync::Mutex::default(),
            closed: CancellationToken::new(),
        }
    }

    /// Adds a subscriber that is told nothing yet. `false` if it is there already.
    pub(crate) fn add(&self, client: &Arc<Client>, join_leave: JoinLeave) -> bool {
        let subscriber = Subscription {
            client: Arc::clone(client),
            state: SubscriptionState::Pending(Vec::new()),
            join_leave,
        };
        let mut state = self.state.lock();
        let is_new = !state.subscribers.contains_key(&client.socket);
        if is_new {
            state.subscribers.insert(client.socket.clone(), subscriber);
        }
        is_new
    }

    pub(crate) fn remove(&self, socket: &SocketId) -> bool {
        self.state.lock().subscribers.remove(socket).is_some()
    }

    /// Takes all connections of a user away, and tells them.
    pub(crate) fn remove_user(&self, user: &UserId, why: protocol::Unsubscribe) {
        let frame = protocol::unsubscribe_push(&self.name, why);
        let mut state = self.state.lock();
        state.watched_users.remove(user);
        state.subscribers.retain(|_, subscriber| {
            let keep = subscriber.client.user != *user;
            if !keep {
                subscriber.client.queue.push(frame.clone());
            }
            keep
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().subscribers.is_empty()
    }

    pub(crate) fn clients(&self) -> Vec<Arc<Client>> {
        self.state.lock().subscribers.values().map(|subscriber| Arc::clone(&subscriber.client)).collect()
    }

    /// Where the room is, by the database; whether somebody spoke of a later event already.
    pub(crate) fn initialize(&self, position: u64, watched_users: impl IntoIterator<Item = UserId>) -> bool {
        let mut state = self.state.lock();
        state.watched_users.extend(watched_users);
        let position = *state.position.get_or_insert(position);
        state.latest_known > position
    }

    pub(crate) fn is_initialized(&self) -> bool {
        self.state.lock().position.is_some()
    }

    pub(crate) fn position(&self) -> Option<u64> {
        self.state.lock().position
    }

    pub(crate) fn watched_users(&self) -> Vec<UserId> {
        self.state.lock().watched_users.iter().cloned().collect()
    }

    /// Makes a subscriber active: it gets the reply, if there is any, made of the last event that was told and what it
    /// missed since its position, and then everything else, in this order.
    pub(crate) fn activate(
        &self,
        client: &Client,
        since: Option<u64>,
        reply: impl FnOnce(u64, Vec<Publication>) -> Bytes,
    ) -> Activation {
        let mut state = self.state.lock();
        let ChannelState { position, recent, subscribers, .. } = &mut *state;
        let position = position.unwrap_or(0);
        let Some(subscriber) = subscribers.get_mut(&client.socket) else { return Activation::Revoked };
        let mut missed = Vec::new();
        if let Some(since) = since {
            if since > position {
                return Activation::Ahead;
            }
            if since + 1 < position + 1 - recent.len() as u64 {
                return Activation::NeedsHistory;
            }
            let events = recent.iter().filter(|event| event.sequence > since && !client.hides(&event.actor));
            missed = events.map(Publication::from).collect();
        }
        let reply = reply(position, missed);
        if !reply.is_empty() {
            client.queue.reply(reply);
        }
        if let SubscriptionState::Pending(pending) =
            std::mem::replace(&mut subscriber.state, SubscriptionState::Active)
        {
            for frame in pending {
                client.queue.push(frame);
            }
        }
        Activation::Active
    }

    /// Tells an event, if it is the next one.
    pub(crate) fn publish(&self, event: &Event) -> Delivery {
        let mut state = self.state.lock();
        state.latest_known = state.latest_known.max(event.sequence);
        let Some(position) = state.position else { return Delivery::Delivered(0) };
        if event.sequence <= position {
            return Delivery::Delivered(0);
        }
        if event.sequence > position + 1 {
            return Delivery::Gap;
        }
        state.position = Some(event.sequence);
        if state.recent.len() == MAX_RECENT_EVENTS {
            state.recent.pop_front();
        }
        state.recent.push_back(event.clone());
        let frame = protocol::publication_push(&self.name, &Publication::from(event));
        let delivered = state.fan_out(&frame, &event.actor);
        state.apply_membership(event, &self.name);
        Delivery::Delivered(delivered)
    }

    /// Notes that an event of this number exists; whether it is missing here.
    pub(crate) fn note_sequence(&self, sequence: u64) -> bool {
        let mut state = self.state.lock();
        state.latest_known = state.latest_known.max(sequence);
        state.position.is_some_and(|position| position < sequence)
    }

    /// Tells something that is not kept and has no number.
    pub(crate) fn publish_transient(&self, actor: &UserId, data: &str) -> u64 {
        let frame = protocol::transient_push(&self.name, data);
        let mut state = self.state.lock();
        state.hold_for_pending(&frame, actor);
        state.fan_out(&frame, actor)
    }

    /// Tells those who asked for it that a watched user came or went.
    pub(crate) fn publish_presence(&self, user: &UserId, online: bool) -> u64 {
        let frame = protocol::presence_push(&self.name, user, online);
        let mut delivered = 0;
        for subscriber in self.state.lock().subscribers.values() {
            if subscriber.is_active()
                && subscriber.join_leave == JoinLeave::Enabled
                && !subscriber.client.hides(user)
            {
                subscriber.client.queue.push(frame.clone());
                delivered += 1;
            }
        }
        delivered
    }

    /// Notes that somebody types, or does not any more; whether that is news here.
    pub(crate) fn set_typing(&self, user: &UserId, until: Option<Instant>) -> bool {
        let mut state = self.state.lock();
        match until {
            Some(until) => state.typists.insert(user.clone(), until).is_none(),
            None => state.typists.remove(user).is_some(),
        }
    }

    /// Those whose typing should be over by now.
    pub(crate) fn has_expired_typing(&self, now: Instant) -> bool {
        self.state.lock().typists.values().any(|until| *until <= now)
    }

    /// Keeps those who still type; answers with those who stopped.
    pub(crate) fn expire_typing(&self, now: Instant, typing: &[(UserId, Duration)]) -> Vec<UserId> {
        let mut state = self.state.lock();
        for (user, left) in typing {
            if let Some(until) = state.typists.get_mut(user) {
                *until = now + *left;
            }
        }
        let over = |until: &Instant| *until <= now;
        let stopped: Vec<UserId> =
            state.typists.iter().filter(|(_, until)| over(until)).map(|(user, _)| user.clone()).collect();
        state.typists.retain(|_, until| !over(until));
        stopped
    }
}

impl Subscription {
    fn is_active(&self) -> bool {
        matches!(self.state, SubscriptionState::Active)
    }
}

impl ChannelState {
    fn fan_out(&self, frame: &Bytes, actor: &UserId) -> u64 {
        let mut delivered = 0;
        for subscriber in self.subscribers.values() {
            if subscriber.is_active() && !subscriber.client.hides(actor) {
                subscriber.client.queue.push(frame.clone());
                delivered += 1;
            }
        }
        delivered
    }

    /// Keeps what is said in passing for those who are not told things yet. Events are not kept: they have numbers.
    fn hold_for_pending(&mut self, frame: &Bytes, actor: &UserId) {
        for subscriber in self.subscribers.values_mut() {
            if let SubscriptionState::Pending(pending) = &mut subscriber.state
                && pending.len() < MAX_PENDING
                && !subscriber.client.hides(actor)
            {
                pending.push(frame.clone());
            }
        }
    }

    /// Keeps the members in step with the events. Who left hears nothing from here on, whatever else was or
    /// was not told to this node.
    fn apply_membership(&mut self, event: &Event, name: &ChannelName) {
        match event.membership_change() {
            Some(EventPayload::Joined { user_id }) => {
                self.watched_users.insert(user_id);
            }
            Some(EventPayload::Left { user_id }) => {
                self.watched_users.remove(&user_id);
                let frame = protocol::unsubscribe_push(name, protocol::Unsubscribe::SERVER);
                self.subscribers.retain(|_, subscriber| {
                    let keep = subscriber.client.user != user_id;
                    if !keep {
                        subscriber.client.queue.push(frame.clone());
                    }
                    keep
                });
            }
            _ => {}
        }
    }
}
