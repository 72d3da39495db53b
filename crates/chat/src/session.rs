//! What a connection may ask for, and the answers: the commands of the client protocol.

pub(crate) mod protocol;
mod rate_limit;
mod rpc;
pub mod token;
pub(crate) mod websocket;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hob_database::Database;

use self::protocol::{Answer, Code, Command, Disconnect, Publication};
use self::rate_limit::Bucket;
use self::token::BadToken;
use crate::chat::now_s;
use crate::conversation::event::Event;
use crate::conversation::member;
use crate::conversation::message::Span;
use crate::database::events;
use crate::hub::channel_name::Channel;
use crate::hub::{Activation, Joins, Limits, Peer, Room};
use crate::keys::{ConversationId, UserId};
use crate::{Chat, Config, Error, Refusal};

/// So many events are read at a time for a client that was away.
const PAGE: u16 = 100;
/// What the first answer to it holds at most, in bytes; the rest follows as it takes it.
const MOST_AT_FIRST: usize = 256 * 1024;
/// No connection lasts longer, whatever its token says: ten years.
const LONGEST_S: u64 = 10 * 365 * 86_400;
/// What a subscriber asks for who can do nothing without recovery.
const REJECT_UNRECOVERED: u64 = 2;

/// One connection: nobody at first, then a user.
pub(crate) struct Session {
    chat: Chat,
    config: Arc<Config>,
    peer: Option<Arc<Peer>>,
    /// What is to be told to somebody who was not let in.
    refused: Option<Bytes>,
    expires_s: i64,
    /// When a connection whose token was not renewed is closed.
    ends: Instant,
    channels: HashSet<Channel>,
    /// What is still being recovered.
    behind: Vec<Behind>,
    commands: Bucket,
    subscribes: Bucket,
    typing: Bucket,
}

/// A channel whose subscriber was away for long: it is told what it missed bit by bit, as fast as it takes it.
struct Behind {
    room: Arc<Room>,
    conversation: ConversationId,
    /// The last event that it was told.
    since: u64,
}

/// What a command came to: an answer, or none because it is queued already, or was not asked for.
type Outcome = Result<Option<Answer>, Disconnect>;

impl Session {
    pub(crate) fn new(chat: Chat) -> Self {
        let config = chat.config();
        let now = Instant::now();
        let commands =
            Bucket::new(config.commands_per_second, config.commands_per_second.saturating_mul(10), now);
        let subscribes = Bucket::new(10, config.channels_per_connection.saturating_mul(2).max(32), now);
        Self {
            chat,
            config,
            peer: None,
            refused: None,
            expires_s: 0,
            ends: now,
            channels: HashSet::new(),
            behind: Vec::new(),
            commands,
            subscribes,
            typing: Bucket::new(2, 10, now),
        }
    }

    pub(crate) fn peer(&self) -> Option<Arc<Peer>> {
        self.peer.clone()
    }

    pub(crate) fn take_refused(&mut self) -> Option<Bytes> {
        self.refused.take()
    }

    pub(crate) fn ends(&self) -> Instant {
        self.ends
    }

    fn expire(&mut self, expires_s: i64) {
        let left = u64::try_from(expires_s.saturating_sub(now_s())).unwrap_or(0).min(LONGEST_S);
        self.expires_s = expires_s;
        self.ends = Instant::now() + Duration::from_secs(left) + self.config.token_grace.get();
    }

    pub(crate) fn ping_every(&self) -> Duration {
        self.config.ping_every.get()
    }

    /// Leaves all channels, and counts the connection as closed.
    pub(crate) async fn close(self) {
        let Some(peer) = &self.peer else { return };
        for channel in &self.channels {
            self.chat.inner.hub.exit(channel, &peer.socket);
        }
        self.chat.disconnect(peer).await;
    }

    /// Carries out a command, and queues the reply.
    pub(crate) async fn carry_out(&mut self, command: Command) -> Result<(), Disconnect> {
        let id = command.id;
        let Some(peer) = self.peer.clone() else {
            let Some(connect) = command.connect else { return Err(Disconnect::BAD_REQUEST) };
            return self.connect(id, &connect.token).await;
        };
        if id == 0 {
            // A pong, or something that wants no reply and that nobody here listens to.
            return if command.send.is_some() || command.is_empty() {
                Ok(())
            } else {
                Err(Disconnect::BAD_REQUEST)
            };
        }
        let answer = if self.commands.take(Instant::now()) {
            self.answer(&peer, command).await?
        } else {
            Some(Answer::Error(Code::TOO_MANY_REQUESTS))
        };
        if let Some(answer) = answer {
            peer.outlet.reply(protocol::reply(id, &answer));
        }
        Ok(())
    }

    async fn answer(&mut self, peer: &Arc<Peer>, command: Command) -> Outcome {
        let id = command.id;
        if let Some(subscribe) = command.subscribe {
            return Ok(self.subscribe(peer, id, subscribe).await);
        }
        let answer = if let Some(of) = command.unsubscribe {
            self.unsubscribe(peer, &of.channel)
        } else if let Some(publish) = command.publish {
            self.publish(peer, &publish).await
        } else if let Some(of) = command.presence {
            self.presence(peer, &of.channel).await.map(Answer::Presence)
        } else if let Some(of) = command.presence_stats {
            self.presence(peer, &of.channel).await.map(|answer| Answer::PresenceStats(stats(&answer)))
        } else if let Some(history) = command.history {
            self.history(peer, history).await
        } else if let Some(call) = command.rpc {
            self.rpc(peer, &call).await
        } else if let Some(refresh) = command.refresh {
            return self.refresh(peer, &refresh.token);
        } else if command.ping.is_some() {
            Ok(Answer::Ping(protocol::Empty {}))
        } else if command.sub_refresh.is_some() {
            // Channels need no tokens of their own.
            Err(Code::NOT_AVAILABLE)
        } else if command.connect.is_some() {
            return Err(Disconnect::BAD_REQUEST);
        } else {
            Err(Code::METHOD_NOT_FOUND)
        };
        Ok(Some(answer.unwrap_or_else(Answer::Error)))
    }

    async fn connect(&mut self, id: u32, token: &str) -> Result<(), Disconnect> {
        let verified = match self.chat.inner.tokens.verify(token, now_s()) {
            Ok(verified) => verified,
            Err(BadToken::Invalid) => return Err(Disconnect::INVALID_TOKEN),
            Err(BadToken::Expired) => {
                // Told in a reply: it makes clients ask for a new token before they come back.
                self.refused = Some(protocol::reply(id, &Answer::Error(Code::TOKEN_EXPIRED)));
                return Err(Disconnect::EXPIRED);
            }
        };
        let limits =
            Limits { most_bytes: self.config.queue_bytes as usize, every: self.config.write_every.get() };
        let peer = Arc::new(Peer::new(verified.user, limits));
        match self.chat.connect(&peer).await {
            Ok(Ok(())) => {}
            Ok(Err(Refusal::TooMany { .. })) => return Err(Disconnect::CONNECTION_LIMIT),
            Ok(Err(_)) => return Err(Disconnect::TOO_MANY_REQUESTS),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                return Err(Disconnect::SERVER_ERROR);
            }
        }
        self.expire(verified.expires_s);
        let mut connected = self.connected(&peer);
        connected.ping = Some(self.config.ping_every.get().as_secs().max(1));
        connected.pong = Some(true);
        connected.node = Some(self.chat.node_name().to_owned());
        peer.outlet.reply(protocol::reply(id, &Answer::Connect(connected)));
        self.peer = Some(peer);
        Ok(())
    }

    fn connected(&self, peer: &Peer) -> protocol::Connected {
        protocol::Connected {
            client: peer.socket.to_string(),
            version: concat!("hob ", env!("CARGO_PKG_VERSION")),
            expires: true,
            ttl: u64::try_from(self.expires_s - now_s()).unwrap_or(0).max(1),
            ..protocol::Connected::default()
        }
    }

    /// A new token for the same user.
    fn refresh(&mut self, peer: &Peer, token: &str) -> Outcome {
        match self.chat.inner.tokens.verify(token, now_s()) {
            Ok(verified) if verified.user == peer.user => {
                self.expire(verified.expires_s);
                Ok(Some(Answer::Refresh(self.connected(peer))))
            }
            Ok(_) | Err(BadToken::Invalid) => Err(Disconnect::INVALID_TOKEN),
            Err(BadToken::Expired) => Ok(Some(Answer::Error(Code::TOKEN_EXPIRED))),
        }
    }

    /// Subscribes. The reply is queued by the room itself, so that nothing comes before it.
    async fn subscribe(&mut self, peer: &Arc<Peer>, id: u32, wish: protocol::Subscribe) -> Option<Answer> {
        let Ok(channel) = wish.channel.parse::<Channel>() else {
            return Some(Answer::Error(Code::UNKNOWN_CHANNEL));
        };
        if !self.subscribes.take(Instant::now()) {
            return Some(Answer::Error(Code::TOO_MANY_REQUESTS));
        }
        if self.channels.len() >= self.config.channels_per_connection as usize
            && !self.channels.contains(&channel)
        {
            return Some(Answer::Error(Code::LIMIT_EXCEEDED));
        }
        let joins = if wish.join_leave { Joins::Wanted } else { Joins::Unwanted };
        let hub = Arc::clone(&self.chat.inner.hub);
        let Some(room) = hub.enter(&channel, peer, joins) else {
            return Some(Answer::Error(Code::ALREADY_SUBSCRIBED));
        };
        let admitted = match &channel {
            Channel::Conversation(conversation) => self.join(peer, id, &room, conversation, &wish).await,
            Channel::Feed(user) => self.follow(peer, id, &room, user).await,
        };
        match admitted {
            Ok(()) => {
                self.channels.insert(channel);
                None
            }
            Err(code) => {
                hub.exit(&channel, &peer.socket);
                Some(Answer::Error(code))
            }
        }
    }

    async fn join(
        &mut self,
        peer: &Peer,
        id: u32,
        room: &Arc<Room>,
        conversation: &ConversationId,
        wish: &protocol::Subscribe,
    ) -> Result<(), Code> {
        let inner = &self.chat.inner;
        if member::permit(&inner.database, conversation, &peer.user).await.map_err(internal)?.is_err() {
            return Err(Code::PERMISSION_DENIED);
        }
        inner.hub.begin(room).await.map_err(internal)?;
        let same_epoch = wish.epoch.is_empty() || wish.epoch == inner.epoch;
        let mut since = (wish.recover && same_epoch).then_some(wish.offset);
        if since > room.top() {
            // Another node has told it more than this one has heard of; what it holds must not be told again.
            inner.hub.catch_up(room).await.map_err(internal)?;
        }
        let mut older: Vec<Event> = Vec::new();
        loop {
            let recovered = since.is_some();
            if wish.recover && !recovered && wish.flag & REJECT_UNRECOVERED != 0 {
                return Err(Code::UNRECOVERABLE_POSITION);
            }
            let reply = |offset, missed: Vec<Publication>| {
                let seen = older.iter().filter(|event| !peer.hides(&event.actor));
                let publications = seen.map(Publication::from).chain(missed).collect();
                let answer = Answer::Subscribe(protocol::Subscribed {
                    recoverable: true,
                    positioned: true,
                    epoch: inner.epoch.clone(),
                    offset,
                    publications,
                    recovered,
                    was_recovering: wish.recover,
                    data: None,
                });
                protocol::reply(id, &answer)
            };
            if let Some(since) = since
                && older.iter().map(|event| event.payload.len()).sum::<usize>() > MOST_AT_FIRST
            {
                peer.outlet.reply(reply(since, Vec::new()));
                let (room, conversation) = (Arc::clone(room), conversation.clone());
                self.behind.push(Behind { room, conversation, since });
                return Ok(());
            }
            match room.activate(peer, since, reply) {
                Activation::Active => return Ok(()),
                Activation::Revoked => return Err(Code::PERMISSION_DENIED),
                Activation::Ahead => {
                    since = None;
                    older.clear();
                }
                Activation::Older => {
                    let after = since.unwrap_or(0);
                    let events =
                        told_after(&inner.database, room, conversation, after).await.map_err(internal)?;
                    // What the room has told is in the database.
                    since = Some(events.last().ok_or(Code::INTERNAL)?.sequence);
                    older.extend(events);
                }
            }
        }
    }

    pub(crate) fn is_behind(&self) -> bool {
        !self.behind.is_empty()
    }

    /// Tells a subscriber that was away more of what it missed, if there is any, once it has taken what came before.
    pub(crate) async fn catch_up(&mut self) -> Result<(), Error> {
        let Some(peer) = self.peer.clone() else { return Ok(()) };
        while let Some(behind) = self.behind.last_mut()
            && peer.outlet.is_idle()
        {
            let channel = &behind.room.channel;
            let all = |_, missed: Vec<Publication>| {
                let pushes: Vec<Bytes> =
                    missed.iter().map(|missed| protocol::publication_push(channel, missed)).collect();
                pushes.join(&b'\n').into()
            };
            match behind.room.activate(&peer, Some(behind.since), all) {
                Activation::Older => {
                    let database = &self.chat.inner.database;
                    let Behind { room, conversation, since } = &*behind;
                    let events = told_after(database, room, conversation, *since).await?;
                    behind.since = events.last().map_or(behind.since, |event| event.sequence);
                    for event in events.iter().filter(|event| !peer.hides(&event.actor)) {
                        let push = protocol::publication_push(channel, &Publication::from(event));
                        peer.outlet.reply(push);
                    }
                }
                // It is told everything from now on, or was taken away meanwhile.
                _ => drop(self.behind.pop()),
            }
        }
        Ok(())
    }

    async fn follow(&self, peer: &Peer, id: u32, room: &Room, user: &UserId) -> Result<(), Code> {
        if *user != peer.user {
            return Err(Code::PERMISSION_DENIED);
        }
        self.chat.inner.hub.begin(room).await.map_err(internal)?;
        let picture = self.chat.picture(user).await.map_err(internal)?;
        let picture = serde_json::value::to_raw_value(&picture).map_err(|error| internal(error.into()))?;
        let reply = |_, _| {
            let data = Some(picture);
            protocol::reply(id, &Answer::Subscribe(protocol::Subscribed { data, ..Default::default() }))
        };
        match room.activate(peer, None, reply) {
            Activation::Active => Ok(()),
            _ => Err(Code::PERMISSION_DENIED),
        }
    }

    fn unsubscribe(&mut self, peer: &Peer, channel: &str) -> Result<Answer, Code> {
        let channel = channel.parse().map_err(|()| Code::UNKNOWN_CHANNEL)?;
        self.channels.remove(&channel);
        self.behind.retain(|behind| behind.room.channel != channel);
        self.chat.inner.hub.exit(&channel, &peer.socket);
        Ok(Answer::Unsubscribe(protocol::Empty {}))
    }

    async fn publish(&self, peer: &Peer, publish: &protocol::Publish) -> Result<Answer, Code> {
        let conversation = conversation(&publish.channel)?;
        rpc::publish(&self.chat, &peer.user, conversation, &publish.data).await?;
        Ok(Answer::Publish(protocol::Empty {}))
    }

    async fn presence(&self, peer: &Peer, channel: &str) -> Result<protocol::PresenceAnswer, Code> {
        let conversation = conversation(channel)?;
        let present = self.chat.present(&conversation, &peer.user).await.map_err(internal)?;
        let present = present.map_err(|refusal| rpc::code(&refusal))?;
        let mut presence = BTreeMap::new();
        for (user, sockets) in present {
            for socket in sockets {
                let client = socket.to_string();
                presence.insert(client.clone(), protocol::ClientInfo { user: user.to_string(), client });
            }
        }
        Ok(protocol::PresenceAnswer { presence })
    }

    async fn history(&self, peer: &Peer, wish: protocol::History) -> Result<Answer, Code> {
        let conversation = conversation(&wish.channel)?;
        let epoch = self.chat.inner.epoch.clone();
        if wish.since.as_ref().is_some_and(|since| !since.epoch.is_empty() && since.epoch != epoch) {
            return Err(Code::UNRECOVERABLE_POSITION);
        }
        let span = match (&wish.since, wish.reverse) {
            (Some(since), false) => Span::After(since.offset),
            (Some(since), true) => Span::Before(since.offset),
            (None, false) => Span::After(0),
            (None, true) => Span::Newest,
        };
        // No limit asks for the position alone, a negative one for as much as there is.
        let most = i64::from(crate::chat::conversations::MOST);
        let limit = if wish.limit < 0 { most } else { wish.limit.min(most) };
        let limit = u16::try_from(limit).unwrap_or(0);
        let events = self.chat.events(&conversation, &peer.user, span, limit).await.map_err(internal)?;
        let (events, offset) = events.map_err(|refusal| rpc::code(&refusal))?;
        let publications = events.iter().map(Publication::from).collect();
        Ok(Answer::History(protocol::HistoryAnswer { publications, epoch, offset }))
    }

    async fn rpc(&mut self, peer: &Peer, call: &protocol::Rpc) -> Result<Answer, Code> {
        if call.method == "typing" && !self.typing.take(Instant::now()) {
            return Err(Code::TOO_MANY_REQUESTS);
        }
        let data = rpc::call(&self.chat, &peer.user, &call.method, call.data.as_deref()).await?;
        Ok(Answer::Rpc(protocol::RpcAnswer { data }))
    }
}

/// Events after one, some at a time, up to the last one that the room has told. What the database has beyond it is told to
/// everybody in a moment.
async fn told_after(
    database: &Database,
    room: &Room,
    conversation: &ConversationId,
    after: u64,
) -> Result<Vec<Event>, Error> {
    let told = room.top().unwrap_or(0);
    let mut events = events::after(database, conversation, after, PAGE).await?;
    events.retain(|event| event.sequence <= told);
    Ok(events)
}

fn conversation(channel: &str) -> Result<ConversationId, Code> {
    match channel.parse() {
        Ok(Channel::Conversation(id)) => Ok(id),
        Ok(Channel::Feed(_)) => Err(Code::NOT_AVAILABLE),
        Err(()) => Err(Code::UNKNOWN_CHANNEL),
    }
}

fn stats(answer: &protocol::PresenceAnswer) -> protocol::PresenceStats {
    let users: HashSet<&str> = answer.presence.values().map(|info| info.user.as_str()).collect();
    protocol::PresenceStats { num_clients: answer.presence.len(), num_users: users.len() }
}

/// What went wrong goes to the log, and the client may try again.
#[allow(clippy::needless_pass_by_value, reason = "made for `map_err`")]
pub(crate) fn internal(error: Error) -> Code {
    tracing::warn!(%error, "a command failed");
    Code::INTERNAL
}
