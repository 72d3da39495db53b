//! A channel on this node: those who are subscribed here, how far they were told, and the newest events.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::client::Peer;
use crate::conversation::event::{Event, Happening};
use crate::hub::channel_name::Channel;
use crate::keys::{SocketId, UserId};
use crate::session::protocol::{self, Publication};

/// So many events are kept at hand, for those who come back soon.
const RING: usize = 64;

/// A channel with subscribers on this node.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) channel: Channel,
    state: Mutex<State>,
    /// One at a time fills a gap.
    pub(crate) filling: tokio::sync::Mutex<()>,
    /// Ends the room's ear on the bus.
    pub(crate) closed: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    /// The last event that subscribers were told; `None` until the database was asked.
    top: Option<u64>,
    /// The last event that anybody spoke of.
    heard: u64,
    ring: VecDeque<Event>,
    subscribers: HashMap<SocketId, Subscriber>,
    /// The conversation's members, or the feed's contacts: whose coming and going is told here.
    watched: HashSet<UserId>,
    typists: HashMap<UserId, Instant>,
}

#[derive(Debug)]
struct Subscriber {
    peer: Arc<Peer>,
    stage: Stage,
    joins: Joins,
}

/// Whether a subscriber may be told things yet. It is added before its permission is looked up, so that it
/// can be taken away again meanwhile.
#[derive(Debug)]
enum Stage {
    /// What was said in passing meanwhile waits until it is active.
    Pending(Vec<Bytes>),
    Active,
}

/// So much is kept for a pending subscriber.
const MOST_HELD: usize = 256;

/// Whether a subscriber wants to hear of others who come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joins {
    Wanted,
    Unwanted,
}

/// What telling an event came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// To so many subscribers.
    To(u64),
    /// Events before it are missing.
    Gap,
}

/// What making a subscriber active came to.
#[derive(Debug)]
pub(crate) enum Activation {
    /// From now on it is told everything after `top`.
    Active,
    /// It must first be given the events after its position that are not at hand.
    Older,
    /// Its position is ahead of everything there is.
    Ahead,
    /// It was taken away meanwhile.
    Revoked,
}

impl Room {
    pub(crate) fn new(channel: Channel) -> Self {
        Self {
            channel,
            state: Mutex::default(),
            filling: tokio::sync::Mutex::default(),
            closed: CancellationToken::new(),
        }
    }

    /// Adds a subscriber that is told nothing yet. `false` if it is there already.
    pub(crate) fn add(&self, peer: &Arc<Peer>, joins: Joins) -> bool {
        let subscriber = Subscriber { peer: Arc::clone(peer), stage: Stage::Pending(Vec::new()), joins };
        let mut state = self.state.lock();
        let fresh = !state.subscribers.contains_key(&peer.socket);
        if fresh {
            state.subscribers.insert(peer.socket.clone(), subscriber);
        }
        fresh
    }

    pub(crate) fn remove(&self, socket: &SocketId) -> bool {
        self.state.lock().subscribers.remove(socket).is_some()
    }

    /// Takes all connections of a user away, and tells them.
    pub(crate) fn remove_user(&self, user: &UserId, why: protocol::Unsubscribed) {
        let frame = protocol::unsubscribe_push(&self.channel, why);
        let mut state = self.state.lock();
        state.watched.remove(user);
        state.subscribers.retain(|_, subscriber| {
            let stays = subscriber.peer.user != *user;
            if !stays {
                subscriber.peer.outlet.push(frame.clone());
            }
            stays
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().subscribers.is_empty()
    }

    pub(crate) fn peers(&self) -> Vec<Arc<Peer>> {
        self.state.lock().subscribers.values().map(|subscriber| Arc::clone(&subscriber.peer)).collect()
    }

    /// Where the room is, by the database; whether somebody spoke of a later event already.
    pub(crate) fn begin(&self, top: u64, watched: impl IntoIterator<Item = UserId>) -> bool {
        let mut state = self.state.lock();
        state.watched.extend(watched);
        let top = *state.top.get_or_insert(top);
        state.heard > top
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.state.lock().top.is_some()
    }

    pub(crate) fn top(&self) -> Option<u64> {
        self.state.lock().top
    }

    pub(crate) fn watched(&self) -> Vec<UserId> {
        self.state.lock().watched.iter().cloned().collect()
    }

    /// Makes a subscriber active: it gets the reply, if there is any, made of the last event that was told and what it
    /// missed since its position, and then everything else, in this order.
    pub(crate) fn activate(
        &self,
        peer: &Peer,
        since: Option<u64>,
        reply: impl FnOnce(u64, Vec<Publication>) -> Bytes,
    ) -> Activation {
        let mut state = self.state.lock();
        let State { top, ring, subscribers, .. } = &mut *state;
        let top = top.unwrap_or(0);
        let Some(subscriber) = subscribers.get_mut(&peer.socket) else { return Activation::Revoked };
        let mut missed = Vec::new();
        if let Some(since) = since {
            if since > top {
                return Activation::Ahead;
            }
            if since + 1 < top + 1 - ring.len() as u64 {
                return Activation::Older;
            }
            let events = ring.iter().filter(|event| event.sequence > since && !peer.hides(&event.actor));
            missed = events.map(Publication::from).collect();
        }
        let reply = reply(top, missed);
        if !reply.is_empty() {
            peer.outlet.reply(reply);
        }
        if let Stage::Pending(held) = std::mem::replace(&mut subscriber.stage, Stage::Active) {
            for frame in held {
                peer.outlet.push(frame);
            }
        }
        Activation::Active
    }

    /// Tells an event, if it is the next one.
    pub(crate) fn tell(&self, event: &Event) -> Told {
        let mut state = self.state.lock();
        state.heard = state.heard.max(event.sequence);
        let Some(top) = state.top else { return Told::To(0) };
        if event.sequence <= top {
            return Told::To(0);
        }
        if event.sequence > top + 1 {
            return Told::Gap;
        }
        state.top = Some(event.sequence);
        if state.ring.len() == RING {
            state.ring.pop_front();
        }
        state.ring.push_back(event.clone());
        let frame = protocol::publication_push(&self.channel, &Publication::from(event));
        let told = state.fan_out(&frame, &event.actor);
        state.follow(event, &self.channel);
        Told::To(told)
    }

    /// Notes that an event of this number exists; whether it is missing here.
    pub(crate) fn hear_of(&self, sequence: u64) -> bool {
        let mut state = self.state.lock();
        state.heard = state.heard.max(sequence);
        state.top.is_some_and(|top| top < sequence)
    }

    /// Tells something that is not kept and has no number.
    pub(crate) fn whisper(&self, actor: &UserId, data: &str) -> u64 {
        let frame = protocol::soft_push(&self.channel, data);
        let mut state = self.state.lock();
        state.hold(&frame, actor);
        state.fan_out(&frame, actor)
    }

    /// Tells those who asked for it that a watched user came or went.
    pub(crate) fn tell_presence(&self, user: &UserId, online: bool) -> u64 {
        let frame = protocol::presence_push(&self.channel, user, online);
        let mut told = 0;
        for subscriber in self.state.lock().subscribers.values() {
            if subscriber.is_active() && subscriber.joins == Joins::Wanted && !subscriber.peer.hides(user) {
                subscriber.peer.outlet.push(frame.clone());
                told += 1;
            }
        }
        told
    }

    /// Notes that somebody types, or does not any more; whether that is news here.
    pub(crate) fn note_typing(&self, user: &UserId, until: Option<Instant>) -> bool {
        let mut state = self.state.lock();
        match until {
            Some(until) => state.typists.insert(user.clone(), until).is_none(),
            None => state.typists.remove(user).is_some(),
        }
    }

    /// Those whose typing should be over by now.
    pub(crate) fn typists_due(&self, now: Instant) -> bool {
        self.state.lock().typists.values().any(|until| *until <= now)
    }

    /// Keeps those who still type; answers with those who stopped.
    pub(crate) fn keep_typists(&self, now: Instant, typing: &[(UserId, Duration)]) -> Vec<UserId> {
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

impl Subscriber {
    fn is_active(&self) -> bool {
        matches!(self.stage, Stage::Active)
    }
}

impl State {
    fn fan_out(&self, frame: &Bytes, actor: &UserId) -> u64 {
        let mut told = 0;
        for subscriber in self.subscribers.values() {
            if subscriber.is_active() && !subscriber.peer.hides(actor) {
                subscriber.peer.outlet.push(frame.clone());
                told += 1;
            }
        }
        told
    }

    /// Keeps what is said in passing for those who are not told things yet. Events are not kept: they have numbers.
    fn hold(&mut self, frame: &Bytes, actor: &UserId) {
        for subscriber in self.subscribers.values_mut() {
            if let Stage::Pending(held) = &mut subscriber.stage
                && held.len() < MOST_HELD
                && !subscriber.peer.hides(actor)
            {
                held.push(frame.clone());
            }
        }
    }

    /// Keeps the members in step with the events. Who left hears nothing from here on, whatever else was or
    /// was not told to this node.
    fn follow(&mut self, event: &Event, channel: &Channel) {
        match event.membership() {
            Some(Happening::Joined { user_id }) => {
                self.watched.insert(user_id);
            }
            Some(Happening::Left { user_id }) => {
                self.watched.remove(&user_id);
                let frame = protocol::unsubscribe_push(channel, protocol::Unsubscribed::SERVER);
                self.subscribers.retain(|_, subscriber| {
                    let stays = subscriber.peer.user != user_id;
                    if !stays {
                        subscriber.peer.outlet.push(frame.clone());
                    }
                    stays
                });
            }
            _ => {}
        }
    }
}
