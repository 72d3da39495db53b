//! A channel of a namespace on this node: its subscriptions, and the position up to which they have received publications.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::hub::{Client, SharedPush, SocketFrame};
use crate::keys::{NamedChannel, SocketId};
use crate::session::protocol::{Presence, Publication, Push, Reply, Unsubscribe};
use crate::store::history::Position;

/// How many pushes are held for a subscription that is not active yet.
const MAX_HELD: usize = 256;

/// A channel with subscriptions on this node.
#[derive(Debug)]
pub(super) struct LocalChannel {
    pub(super) name: NamedChannel,
    state: Mutex<State>,
    /// Whether this node receives the messages of the channel.
    pub(super) listening: watch::Sender<bool>,
    /// Stops the listener.
    pub(super) closed: CancellationToken,
    /// Serializes catching up.
    pub(super) catching_up: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// The last publication that was delivered here. `None` before the first one, and in namespaces without a history.
    position: Option<Position>,
    subscriptions: HashMap<SocketId, Subscription>,
}

/// The subscription of a client.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) client: Arc<Client>,
    /// The client as others see it, as JSON.
    pub(super) info: Arc<str>,
    /// Whether a loss of publications ends the subscription, so that the client recovers.
    pub(super) is_positioned: bool,
    /// Whether it receives joins and leaves.
    pub(super) gets_join_leave: bool,
    /// When it ends unless its token is refreshed, in Unix seconds.
    pub(super) expires_s: Option<i64>,
    pub(super) state: SubscriptionState,
}

#[derive(Debug)]
pub(super) enum SubscriptionState {
    /// Pushes and their offsets are held until the reply is sent.
    Pending(Vec<(u64, SocketFrame)>),
    /// Has received everything up to this offset.
    Active(u64),
}

/// A message of the channel between nodes.
#[derive(Debug, Deserialize)]
pub(super) struct Message<'a> {
    #[serde(default)]
    pub(super) epoch: &'a str,
    #[serde(default)]
    pub(super) offset: u64,
    #[serde(rename = "pub")]
    pub(super) publication: Option<Publication>,
    pub(super) join: Option<Presence>,
    pub(super) leave: Option<Presence>,
}

/// What has become of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    Delivered(u64),
    /// It was delivered before.
    Known,
    /// Earlier ones are missing, or the stream has begun again.
    Gap,
}

impl LocalChannel {
    pub(super) fn new(name: NamedChannel) -> Self {
        Self {
            name,
            state: Mutex::default(),
            listening: watch::Sender::new(false),
            closed: CancellationToken::new(),
            catching_up: tokio::sync::Mutex::default(),
        }
    }

    /// Adds a pending subscription. `false` if the client is already subscribed.
    pub(super) fn add(&self, subscription: Subscription) -> bool {
        let mut state = self.state.lock();
        let socket = subscription.client.socket.clone();
        let is_new = !state.subscriptions.contains_key(&socket);
        if is_new {
            state.subscriptions.insert(socket, subscription);
        }
        is_new
    }

    pub(super) fn remove(&self, socket: &SocketId) -> Option<Subscription> {
        self.state.lock().subscriptions.remove(socket)
    }

    pub(super) fn is_active(&self, socket: &SocketId) -> bool {
        self.state.lock().subscriptions.get(socket).is_some_and(Subscription::is_active)
    }

    pub(super) fn len(&self) -> usize {
        self.state.lock().subscriptions.len()
    }

    pub(super) fn clients(&self) -> Vec<(Arc<Client>, Arc<str>)> {
        let state = self.state.lock();
        let active = state.subscriptions.values().filter(|subscription| subscription.is_active());
        active.map(|one| (Arc::clone(&one.client), Arc::clone(&one.info))).collect()
    }

    pub(super) fn position(&self) -> Option<Position> {
        self.state.lock().position.clone()
    }

    /// Activates a subscription whose first messages have the publications up to `top`: sends these, and then what was held.
    /// `false` if the subscription was removed meanwhile.
    pub(super) fn activate(&self, socket: &SocketId, top: Option<&Position>, first: &[Reply]) -> bool {
        let mut state = self.state.lock();
        let State { position, subscriptions } = &mut *state;
        let Some(subscription) = subscriptions.get_mut(socket) else { return false };
        if position.is_none() {
            *position = top.cloned();
        }
        let since = top.map_or(0, |top| top.offset);
        for reply in first {
            subscription.client.queue.reply(reply);
        }
        if let SubscriptionState::Pending(held) =
            std::mem::replace(&mut subscription.state, SubscriptionState::Active(since))
        {
            for (_, frame) in held.into_iter().filter(|(offset, _)| *offset == 0 || *offset > since) {
                subscription.client.queue.push_frame(&frame);
            }
        }
        true
    }

    /// Delivers a publication, if it is the next one or has no offset.
    pub(super) fn deliver(&self, epoch: &str, offset: u64, publication: Publication) -> Delivery {
        let mut state = self.state.lock();
        if offset > 0 {
            match &mut state.position {
                Some(position) if position.epoch == epoch => {
                    if offset <= position.offset {
                        return Delivery::Known;
                    }
                    if offset > position.offset + 1 {
                        return Delivery::Gap;
                    }
                    position.offset = offset;
                }
                Some(_) => return Delivery::Gap,
                position => *position = Some(Position { epoch: epoch.to_owned(), offset }),
            }
        }
        let push = Push::publication(&self.name, publication);
        Delivery::Delivered(state.push(offset, &push.into(), |_| true))
    }

    /// Sends a join or a leave to the subscriptions that want them.
    pub(super) fn announce(&self, push: Push) -> u64 {
        self.state.lock().push(0, &push.into(), |subscription| subscription.gets_join_leave)
    }

    /// Continues at this position, because publications before it are lost. Returns the clients whose subscriptions must end.
    pub(super) fn restart(&self, position: Position) -> Vec<Arc<Client>> {
        let mut state = self.state.lock();
        state.position = Some(position);
        let lost = state.subscriptions.values().filter(|one| one.is_positioned && one.is_active());
        lost.map(|subscription| Arc::clone(&subscription.client)).collect()
    }

    /// Sets when a subscription ends. `false` if the client is not subscribed.
    pub(super) fn set_expiry(&self, socket: &SocketId, expires_s: i64) -> bool {
        let mut state = self.state.lock();
        let subscription = state.subscriptions.get_mut(socket);
        subscription.map(|subscription| subscription.expires_s = Some(expires_s)).is_some()
    }

    /// The clients whose subscriptions have ended before this time.
    pub(super) fn expired(&self, now_s: i64) -> Vec<Arc<Client>> {
        let state = self.state.lock();
        let is_over = |one: &&Subscription| one.expires_s.is_some_and(|expires_s| expires_s <= now_s);
        state.subscriptions.values().filter(is_over).map(|one| Arc::clone(&one.client)).collect()
    }

    /// Notifies a client that its subscription has ended.
    pub(super) fn notify_end(&self, client: &Client, reason: Unsubscribe) {
        client.queue.push(Push::unsubscribe(&self.name, reason));
    }
}

impl Subscription {
    fn is_active(&self) -> bool {
        matches!(self.state, SubscriptionState::Active(_))
    }
}

impl State {
    /// Pushes to active subscriptions, and holds the push for those that are pending. Returns how many got it.
    fn push(&mut self, offset: u64, push: &SharedPush, receives: impl Fn(&Subscription) -> bool) -> u64 {
        let mut delivered = 0;
        self.subscriptions.retain(|_, subscription| {
            if !receives(subscription) {
                return true;
            }
            let queue = &subscription.client.queue;
            match &mut subscription.state {
                SubscriptionState::Active(since) if offset > 0 && offset <= *since => {}
                SubscriptionState::Active(_) => {
                    queue.push_shared(push, delivered);
                    delivered += 1;
                }
                // The client gets an error, and subscribes again.
                SubscriptionState::Pending(held) if held.len() == MAX_HELD => return false,
                SubscriptionState::Pending(held) => held.push((offset, push.frame(queue.format()).clone())),
            }
            true
        });
        delivered
    }
}
