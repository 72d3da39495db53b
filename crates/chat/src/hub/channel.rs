//! A channel on this node: its subscriptions, its position, and its newest events.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::frame::{SharedPush, SocketFrame};
use crate::conversation::event::{Event, EventPayload};
use crate::hub::channel_name::ChannelName;
use crate::keys::{SocketId, UserId};
use crate::session::protocol::{Presence, Publication, Push, Reply, Unsubscribe};

/// How many events are kept in memory, for clients that reconnect soon.
const MAX_RECENT_EVENTS: usize = 64;

/// A channel with subscriptions on this node.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) name: ChannelName,
    state: Mutex<ChannelState>,
    /// Serializes catching up.
    pub(crate) catching_up: tokio::sync::Mutex<()>,
    /// Stops the channel's listener.
    pub(crate) closed: CancellationToken,
}

#[derive(Debug, Default)]
struct ChannelState {
    /// The last delivered event. `None` until it was read from the database.
    position: Option<u64>,
    /// The newest event that this node knows of.
    latest_known: u64,
    recent: VecDeque<Event>,
    subscriptions: HashMap<SocketId, Subscription>,
    /// The conversation's members or the feed's contacts, whose presence is reported here.
    watched_users: HashSet<UserId>,
    typists: HashMap<UserId, Instant>,
}

#[derive(Debug)]
struct Subscription {
    client: Arc<Client>,
    state: SubscriptionState,
    join_leave: JoinLeave,
}

/// Whether a subscription receives publications. It is added before the permission check, so that it can be revoked
/// during the check.
#[derive(Debug)]
enum SubscriptionState {
    /// Transient publications are held until the subscription is active.
    Pending(Vec<SocketFrame>),
    Active,
}

/// How many publications are held for a pending subscription.
const MAX_PENDING: usize = 256;

/// Whether a subscription wants join and leave pushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinLeave {
    Enabled,
    Disabled,
}

/// The result of publishing an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The number of subscriptions it was delivered to.
    Delivered(u64),
    /// It was delivered before, or the channel is not initialized.
    Known,
    /// Earlier events are missing.
    Gap,
}

/// The result of activating a subscription.
#[derive(Debug)]
pub(crate) enum Activation {
    /// The subscription receives everything after the channel's position.
    Active,
    /// The client misses events that are no longer in memory.
    NeedsHistory,
    /// The client's position is ahead of the channel's.
    Ahead,
    /// The subscription was removed meanwhile.
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

    /// Adds a pending subscription. `false` if the client is already subscribed.
    pub(crate) fn add(&self, client: &Arc<Client>, join_leave: JoinLeave) -> bool {
        let subscription = Subscription {
            client: Arc::clone(client),
            state: SubscriptionState::Pending(Vec::new()),
            join_leave,
        };
        let mut state = self.state.lock();
        let is_new = !state.subscriptions.contains_key(&client.socket);
        if is_new {
            state.subscriptions.insert(client.socket.clone(), subscription);
        }
        is_new
    }

    /// Whether a connection is subscribed.
    pub(crate) fn has(&self, socket: &SocketId) -> bool {
        self.state.lock().subscriptions.contains_key(socket)
    }

    pub(crate) fn remove(&self, socket: &SocketId) -> bool {
        self.state.lock().subscriptions.remove(socket).is_some()
    }

    /// Removes the subscriptions of a user and notifies the clients.
    pub(crate) fn remove_user(&self, user: &UserId, reason: Unsubscribe) {
        let push = SharedPush::from(Push::unsubscribe(&self.name, reason));
        let mut state = self.state.lock();
        state.watched_users.remove(user);
        state.subscriptions.retain(|_, subscription| {
            let keep = subscription.client.user != *user;
            if !keep {
                subscription.client.queue.push_shared(&push, 0);
            }
            keep
        });
    }

    /// Whether a user has an active subscription here, and is therefore a member: a subscription is activated only for
    /// members, and ends before the removal of a member is acknowledged.
    pub(crate) fn has_active_subscription(&self, user: &UserId) -> bool {
        let is_active = |subscription: &Subscription| {
            subscription.client.user == *user && matches!(subscription.state, SubscriptionState::Active)
        };
        self.state.lock().subscriptions.values().any(is_active)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().subscriptions.is_empty()
    }

    pub(crate) fn clients(&self) -> Vec<Arc<Client>> {
        self.state
            .lock()
            .subscriptions
            .values()
            .map(|subscription| Arc::clone(&subscription.client))
            .collect()
    }

    /// Sets the position and the watched users from the database. `true` if a later event is already known.
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

    /// Reports the presence of these users from now on, up to a number of users. Returns those that are new.
    pub(crate) fn watch(&self, users: &[UserId], max: usize) -> Vec<UserId> {
        let mut state = self.state.lock();
        let mut new = Vec::new();
        for user in users {
            if state.watched_users.len() < max && state.watched_users.insert(user.clone()) {
                new.push(user.clone());
            }
        }
        new
    }

    /// No longer reports the presence of these users.
    pub(crate) fn unwatch(&self, users: &[UserId]) {
        let mut state = self.state.lock();
        for user in users {
            state.watched_users.remove(user);
        }
    }

    pub(crate) fn watched_users(&self) -> Vec<UserId> {
        self.state.lock().watched_users.iter().cloned().collect()
    }

    /// Activates a subscription. The client gets the replies first, made from the channel's position and the
    /// publications that the client missed; then everything that follows.
    pub(crate) fn activate(
        &self,
        client: &Client,
        since: Option<u64>,
        replies: impl FnOnce(u64, Vec<Publication>) -> Vec<Reply>,
    ) -> Activation {
        let mut state = self.state.lock();
        let ChannelState { position, recent, subscriptions, .. } = &mut *state;
        let position = position.unwrap_or(0);
        let Some(subscription) = subscriptions.get_mut(&client.socket) else { return Activation::Revoked };
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
        for reply in replies(position, missed) {
            client.queue.reply(&reply);
        }
        if let SubscriptionState::Pending(pending) =
            std::mem::replace(&mut subscription.state, SubscriptionState::Active)
        {
            for frame in &pending {
                client.queue.push_frame(frame);
            }
        }
        Activation::Active
    }

    /// Delivers an event, if it is the next one.
    pub(crate) fn publish(&self, event: &Event) -> Delivery {
        let mut state = self.state.lock();
        state.latest_known = state.latest_known.max(event.sequence);
        let Some(position) = state.position else { return Delivery::Known };
        if event.sequence <= position {
            return Delivery::Known;
        }
        if event.sequence > position + 1 {
            return Delivery::Gap;
        }
        state.position = Some(event.sequence);
        if state.recent.len() == MAX_RECENT_EVENTS {
            state.recent.pop_front();
        }
        state.recent.push_back(event.clone());
        let push = Push::publication(&self.name, Publication::from(event));
        let delivered = state.fan_out(&push.into(), &event.actor);
        state.apply_membership(event, &self.name);
        Delivery::Delivered(delivered)
    }

    /// Records that an event exists. `true` if it was not delivered here.
    pub(crate) fn note_sequence(&self, sequence: u64) -> bool {
        let mut state = self.state.lock();
        state.latest_known = state.latest_known.max(sequence);
        state.position.is_some_and(|position| position < sequence)
    }

    /// Publishes without storing and without an offset.
    pub(crate) fn publish_transient(&self, actor: &UserId, data: &str) -> u64 {
        self.push_transient(data, |client| !client.hides(actor))
    }

    /// Publishes that a user is typing or has stopped, to the other users.
    pub(crate) fn publish_typing(&self, typist: &UserId, data: &str) -> u64 {
        self.push_transient(data, |client| client.user != *typist && !client.hides(typist))
    }

    fn push_transient(&self, data: &str, receives: impl Fn(&Client) -> bool) -> u64 {
        let push = SharedPush::from(Push::transient(&self.name, data));
        let mut state = self.state.lock();
        let receivers =
            state.subscriptions.values_mut().filter(|subscription| receives(&subscription.client));
        receivers.fold(0, |delivered, subscription| delivered + subscription.push_or_hold(&push, delivered))
    }

    /// Sends a join or leave push to the subscriptions that asked for them.
    pub(crate) fn publish_presence(&self, user: &UserId, online: bool) -> u64 {
        let announce = if online { Push::join } else { Push::leave };
        let push = SharedPush::from(announce(&self.name, Presence::of(user)));
        let mut delivered = 0;
        for subscription in self.state.lock().subscriptions.values() {
            if subscription.is_active()
                && subscription.join_leave == JoinLeave::Enabled
                && !subscription.client.hides(user)
            {
                subscription.client.queue.push_shared(&push, delivered);
                delivered += 1;
            }
        }
        delivered
    }

    /// Sets until when a user counts as typing, or that they stopped. `true` if that is a change.
    pub(crate) fn set_typing(&self, user: &UserId, until: Option<Instant>) -> bool {
        let mut state = self.state.lock();
        match until {
            Some(until) => state.typists.insert(user.clone(), until).is_none(),
            None => state.typists.remove(user).is_some(),
        }
    }

    /// Whether the typing state of any user has expired.
    pub(crate) fn has_expired_typing(&self, now: Instant) -> bool {
        self.state.lock().typists.values().any(|until| *until <= now)
    }

    /// Extends the users who are still typing. Returns those who stopped.
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

    /// Pushes a transient publication, or holds it until the subscription is active. Returns how many were pushed. Events
    /// are not held: they are recovered by sequence number.
    fn push_or_hold(&mut self, push: &SharedPush, delivered: u64) -> u64 {
        let queue = &self.client.queue;
        match &mut self.state {
            SubscriptionState::Active => {
                queue.push_shared(push, delivered);
                1
            }
            SubscriptionState::Pending(pending) => {
                if pending.len() < MAX_PENDING {
                    pending.push(push.frame(queue.format()).clone());
                }
                0
            }
        }
    }
}

impl ChannelState {
    fn fan_out(&self, push: &SharedPush, actor: &UserId) -> u64 {
        let mut delivered = 0;
        for subscription in self.subscriptions.values() {
            if subscription.is_active() && !subscription.client.hides(actor) {
                subscription.client.queue.push_shared(push, delivered);
                delivered += 1;
            }
        }
        delivered
    }

    /// Applies joins and leaves. A user who left receives nothing from here on, whether or not this node got the
    /// control command.
    fn apply_membership(&mut self, event: &Event, name: &ChannelName) {
        match event.membership_change() {
            Some(EventPayload::Joined { user_id }) => {
                self.watched_users.insert(user_id);
            }
            Some(EventPayload::Left { user_id }) => {
                self.watched_users.remove(&user_id);
                let push = SharedPush::from(Push::unsubscribe(name, Unsubscribe::SERVER));
                self.subscriptions.retain(|_, subscription| {
                    let keep = subscription.client.user != user_id;
                    if !keep {
                        subscription.client.queue.push_shared(&push, 0);
                    }
                    keep
                });
            }
            _ => {}
        }
    }
}
