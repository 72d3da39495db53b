//! A session: executes the commands of one connection.

pub(crate) mod channels;
mod connection;
pub(crate) mod http_stream;
pub(crate) mod protocol;
mod proxied;
mod rate_limit;
mod recovery;
mod rpc;
mod sign_in;
pub mod token;
pub(crate) mod websocket;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_net::SocketWriter;
use hob_web::{Credential, CredentialWatch};

use self::protocol::{
    ClientInfo, Command, Disconnect, Format, PresenceResult, PresenceStatsResult, Publication, Reply,
    ReplyError, ReplyResult,
};
use self::rate_limit::TokenBucket;
use self::recovery::{Recovery, delivered_after};
use crate::conversation::event::Event;
use crate::conversation::member::{self, Membership};
use crate::conversation::message::MessageRange;
use crate::hub::channel_name::ChannelName;
use crate::hub::{Activation, Channel, Client, EmulatedSession, JoinLeave};
use crate::keys::{ConversationId, SocketId, UserId};
use crate::proxy::{Peer, ProxyKind};
use crate::{Chat, Config, Error};

/// The most bytes of publications in the first reply. The rest follows as pushes.
const MAX_FIRST_REPLY_BYTES: usize = 256 * 1024;
/// The flag of a subscribe request for an error instead of a reply without recovery.
const REJECT_UNRECOVERED: u64 = 2;

/// One connection. It has no client until its token is verified.
pub(crate) struct Session {
    chat: Chat,
    config: Arc<Config>,
    client: Option<Arc<Client>>,
    format: Format,
    peer: Peer,
    /// The session id and the node with which a client sends commands that cannot use its connection.
    emulation: Option<(String, String)>,
    /// Writes to the connection, until the client has it.
    writer: Option<SocketWriter>,
    /// Looks up the credential that issued the token.
    credentials: Credential,
    /// The connection ends with that credential.
    credential: CredentialWatch,
    /// The reply to a connect command that was rejected.
    rejection: Option<Box<Reply>>,
    expires_s: i64,
    /// When the connection is closed unless its token is refreshed.
    expires_at: Instant,
    /// When a connection is closed that the application has admitted, unless it prolongs it.
    proxied_until: Option<Instant>,
    channels: HashSet<ChannelName>,
    /// Subscriptions that are still recovering.
    recoveries: Vec<Recovery>,
    command_bucket: TokenBucket,
    subscribe_bucket: TokenBucket,
    typing_bucket: TokenBucket,
}

/// The reply to a command, if it is not queued already.
type CommandResult = Result<Option<ReplyResult>, Disconnect>;

impl Session {
    pub(crate) fn new(
        chat: Chat,
        format: Format,
        credentials: Credential,
        writer: Option<SocketWriter>,
        peer: Peer,
    ) -> Box<Self> {
        let config = chat.config();
        let now = Instant::now();
        let command_bucket =
            TokenBucket::new(config.commands_per_second, config.commands_per_second.saturating_mul(10), now);
        let subscribe_bucket =
            TokenBucket::new(10, config.channels_per_connection.saturating_mul(2).max(32), now);
        // On the heap, because each function that it is passed to would reserve memory for it.
        Box::new(Self {
            chat,
            config,
            client: None,
            format,
            peer,
            emulation: None,
            writer,
            credentials,
            credential: CredentialWatch::default(),
            rejection: None,
            expires_s: 0,
            expires_at: now,
            proxied_until: None,
            channels: HashSet::new(),
            recoveries: Vec::new(),
            command_bucket,
            subscribe_bucket,
            typing_bucket: TokenBucket::new(2, 10, now),
        })
    }

    /// The client sends its commands with separate requests.
    pub(crate) fn with_emulation(mut self: Box<Self>, emulated: &EmulatedSession) -> Box<Self> {
        self.emulation = Some((emulated.id().to_owned(), emulated.node().to_owned()));
        self
    }

    pub(crate) fn client(&self) -> Option<Arc<Client>> {
        self.client.clone()
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    pub(crate) fn take_rejection(&mut self) -> Option<Box<Reply>> {
        self.rejection.take()
    }

    pub(crate) fn expires_at(&self) -> Instant {
        let refreshed = self.client.as_ref().and_then(|client| client.refreshed_until());
        refreshed.unwrap_or(self.expires_at)
    }

    /// The credential that the connection ends with.
    pub(crate) fn credential(&self) -> CredentialWatch {
        self.credential.clone()
    }

    fn expire(&mut self, expires_s: i64) {
        self.expires_s = expires_s;
        self.expires_at = self.chat.end_of_connection(expires_s);
        self.proxied_until = None;
        if let Some(client) = &self.client {
            client.set_refreshed_until(None);
        }
    }

    pub(crate) fn ping_interval(&self) -> Duration {
        self.config.ping_interval.get()
    }

    /// Ends all subscriptions and removes the connection.
    pub(crate) async fn close(self) {
        let Some(client) = &self.client else { return };
        for channel in &self.channels {
            self.chat.inner.hub.unsubscribe(channel, &client.socket);
        }
        self.chat.disconnect(client).await;
        // Last: a back end can subscribe the connection as long as the hub has it.
        self.chat.inner.namespaces.disconnect(&client.socket).await;
    }

    /// Executes a command and queues the reply.
    pub(crate) async fn execute(&mut self, command: Command) -> Result<(), Disconnect> {
        let id = command.id;
        let Some(client) = self.client.clone() else {
            let Some(connect) = command.connect else {
                return Err(Disconnect::BAD_REQUEST.with_detail("the first command must be connect"));
            };
            return self.connect(id, &connect).await;
        };
        if id == 0 {
            // A pong, or a message that expects no reply; the chat ignores those.
            return if command.send.is_some() || command.is_empty() {
                Ok(())
            } else {
                Err(Disconnect::BAD_REQUEST.with_detail("id: must be at least 1"))
            };
        }
        let result = if self.command_bucket.take(Instant::now()) {
            self.dispatch(&client, command).await?
        } else {
            Some(ReplyResult::Error(ReplyError::TOO_MANY_REQUESTS))
        };
        if let Some(result) = result {
            client.queue.reply(&Reply::new(id, result));
        }
        Ok(())
    }

    async fn dispatch(&mut self, client: &Arc<Client>, command: Command) -> CommandResult {
        let id = command.id;
        if let Some(subscribe) = command.subscribe {
            return Ok(self.subscribe(client, id, subscribe).await);
        }
        let result = if let Some(request) = command.unsubscribe {
            self.unsubscribe(client, &request.channel).await
        } else if let Some(publish) = command.publish {
            self.publish(client, &publish).await
        } else if let Some(request) = command.presence {
            self.presence(client, &request.channel).await.map(ReplyResult::Presence)
        } else if let Some(request) = command.presence_stats {
            self.presence(client, &request.channel)
                .await
                .map(|result| ReplyResult::PresenceStats(PresenceStatsResult::new(result.presence.values())))
        } else if let Some(history) = command.history {
            self.history(client, history).await
        } else if let Some(call) = command.rpc {
            self.rpc(client, &call).await
        } else if let Some(refresh) = command.refresh {
            return self.refresh(client, &refresh.token).await;
        } else if command.ping.is_some() {
            Ok(ReplyResult::Ping)
        } else if let Some(refresh) = command.sub_refresh {
            self.refresh_subscription(client, &refresh).await
        } else if command.connect.is_some() {
            return Err(Disconnect::BAD_REQUEST.with_detail("already connected"));
        } else {
            Err(ReplyError::METHOD_NOT_FOUND.with_detail("the command is empty or not supported"))
        };
        Ok(Some(result.unwrap_or_else(ReplyResult::Error)))
    }

    /// Subscribes. The channel queues the reply itself, so that no push precedes it.
    async fn subscribe(
        &mut self,
        client: &Arc<Client>,
        id: u32,
        request: protocol::SubscribeRequest,
    ) -> Option<ReplyResult> {
        let name = request.channel.parse::<ChannelName>().ok();
        if !self.subscribe_bucket.take(Instant::now()) {
            return Some(ReplyResult::Error(ReplyError::TOO_MANY_REQUESTS));
        }
        if self.count_channels(client) >= self.config.channels_per_connection as usize {
            self.forget_ended_subscriptions(client);
        }
        if self.count_channels(client) >= self.config.channels_per_connection as usize
            && !name.as_ref().is_some_and(|name| self.channels.contains(name))
        {
            let max = self.config.channels_per_connection;
            let error = ReplyError::LIMIT_EXCEEDED.with_detail(format_args!("at most {max} channels"));
            return Some(ReplyResult::Error(error));
        }
        let Some(name) = name else {
            return self.subscribe_named(client, id, request).await.map_err(ReplyResult::Error).err();
        };
        let join_leave = if request.join_leave { JoinLeave::Enabled } else { JoinLeave::Disabled };
        let hub = Arc::clone(&self.chat.inner.hub);
        let Some(channel) = hub.subscribe(&name, client, join_leave) else {
            return Some(ReplyResult::Error(ReplyError::ALREADY_SUBSCRIBED));
        };
        let admitted = match &name {
            ChannelName::Conversation(conversation) => {
                self.subscribe_to_conversation(client, id, &channel, conversation, &request).await
            }
            ChannelName::Feed(user) => self.subscribe_to_feed(client, id, &channel, user).await,
        };
        match admitted {
            Ok(()) => {
                self.channels.insert(name);
                None
            }
            Err(error) => {
                hub.unsubscribe(&name, &client.socket);
                Some(ReplyResult::Error(error))
            }
        }
    }

    async fn subscribe_to_conversation(
        &mut self,
        client: &Client,
        id: u32,
        channel: &Arc<Channel>,
        conversation: &ConversationId,
        request: &protocol::SubscribeRequest,
    ) -> Result<(), ReplyError> {
        let inner = &self.chat.inner;
        let membership = self.membership(conversation, &client.user).await?;
        if membership.visibility > 0 {
            // The epoch counts an unblock that this connection may not have applied yet.
            inner.hub.reload_blocks(client).await.map_err(internal)?;
        }
        inner.hub.load_channel(channel).await.map_err(internal)?;
        let epoch = membership.epoch(&inner.epoch);
        let same_epoch = request.epoch.is_empty() || request.epoch == epoch;
        let in_absence = self.chat.hides_absence(&membership)
            && request.offset.saturating_add(1) < membership.returned_sequence;
        let mut since = (request.recover && same_epoch && !in_absence).then_some(request.offset);
        if since > channel.position() {
            // Another node has already delivered events to this client that this node has not seen yet. They must not
            // be delivered again.
            inner.hub.catch_up(channel).await.map_err(internal)?;
        }
        let mut older: Vec<Event> = Vec::new();
        loop {
            let recovered = since.is_some();
            if request.recover && !recovered && request.flag & REJECT_UNRECOVERED != 0 {
                return Err(ReplyError::UNRECOVERABLE_POSITION);
            }
            let reply = |offset, missed: Vec<Publication>| {
                let seen = older.iter().filter(|event| !client.hides(&event.actor));
                let publications = seen.map(Publication::from).chain(missed).collect();
                let result = ReplyResult::Subscribe(protocol::SubscribeResult {
                    recoverable: true,
                    positioned: true,
                    epoch: epoch.clone(),
                    offset,
                    publications,
                    recovered,
                    was_recovering: request.recover,
                    ..protocol::SubscribeResult::default()
                });
                Reply::new(id, result)
            };
            if let Some(since) = since
                && older.iter().map(|event| event.payload.len()).sum::<usize>() > MAX_FIRST_REPLY_BYTES
            {
                client.queue.reply(&reply(since, Vec::new()));
                let (channel, conversation) = (Arc::clone(channel), conversation.clone());
                self.recoveries.push(Recovery { channel, conversation, since });
                return Ok(());
            }
            match channel.activate(client, since, |offset, missed| vec![reply(offset, missed)]) {
                Activation::Active => return Ok(()),
                Activation::Revoked => {
                    self.membership(conversation, &client.user).await?;
                    // Still a member: the server has ended the subscription so that the client subscribes again.
                    return Err(ReplyError::INTERNAL);
                }
                Activation::Ahead => {
                    since = None;
                    older.clear();
                }
                Activation::NeedsHistory => {
                    let after = since.unwrap_or(0);
                    let events = delivered_after(&inner.database, channel, conversation, after)
                        .await
                        .map_err(internal)?;
                    // Delivered events are in the database.
                    since = Some(events.last().ok_or(ReplyError::INTERNAL)?.sequence);
                    older.extend(events);
                }
            }
        }
    }

    async fn subscribe_to_feed(
        &self,
        client: &Client,
        id: u32,
        channel: &Channel,
        user: &UserId,
    ) -> Result<(), ReplyError> {
        if *user != client.user {
            return Err(ReplyError::PERMISSION_DENIED);
        }
        self.chat.inner.hub.load_channel(channel).await.map_err(internal)?;
        let snapshot = self.chat.feed_snapshot(user).await.map_err(internal)?;
        let data = serde_json::to_vec(&snapshot).map_err(|error| internal(error.into()))?;
        let reply = |_, _| {
            let result = protocol::SubscribeResult { data, ..Default::default() };
            vec![Reply::new(id, ReplyResult::Subscribe(result))]
        };
        match channel.activate(client, None, reply) {
            Activation::Active => Ok(()),
            _ => Err(ReplyError::INTERNAL),
        }
    }

    async fn membership(&self, id: &ConversationId, user: &UserId) -> Result<Membership, ReplyError> {
        let membership = member::check_member(&self.chat.inner.database, id, user).await.map_err(internal)?;
        membership.map_err(|_| ReplyError::PERMISSION_DENIED)
    }

    fn count_channels(&self, client: &Client) -> usize {
        self.channels.len() + self.chat.inner.namespaces.count_of(&client.socket)
    }

    async fn unsubscribe(&mut self, client: &Client, channel: &str) -> Result<ReplyResult, ReplyError> {
        let Ok(channel) = channel.parse() else { return self.unsubscribe_named(client, channel).await };
        self.channels.remove(&channel);
        self.recoveries.retain(|recovery| recovery.channel.name != channel);
        self.chat.inner.hub.unsubscribe(&channel, &client.socket);
        Ok(ReplyResult::Unsubscribe)
    }

    /// The server ends subscriptions too, and the session is not notified.
    fn forget_ended_subscriptions(&mut self, client: &Client) {
        let hub = &self.chat.inner.hub;
        self.channels.retain(|name| hub.channel(name).is_some_and(|channel| channel.has(&client.socket)));
    }

    async fn publish(
        &self,
        client: &Client,
        publish: &protocol::PublishRequest,
    ) -> Result<ReplyResult, ReplyError> {
        let Some(conversation) = conversation(&publish.channel)? else {
            return self.publish_named(client, publish).await;
        };
        let data = protocol::client_json(&publish.data)?;
        rpc::publish(&self.chat, &client.user, conversation, data).await?;
        Ok(ReplyResult::Publish)
    }

    async fn presence(&self, client: &Client, channel: &str) -> Result<PresenceResult, ReplyError> {
        let Some(conversation) = conversation(channel)? else {
            return self.presence_named(client, channel).await;
        };
        let members = self.chat.online_members(&conversation, &client.user).await.map_err(internal)?;
        let members = members.map_err(|refusal| rpc::error_of(&refusal))?;
        let info = |user: &UserId, socket: &SocketId| ClientInfo {
            user: user.to_string(),
            client: socket.to_string(),
            ..ClientInfo::default()
        };
        let clients = members.iter().flat_map(|(user, sockets)| sockets.iter().map(|one| info(user, one)));
        Ok(PresenceResult::new(clients))
    }

    async fn history(
        &self,
        client: &Client,
        request: protocol::HistoryRequest,
    ) -> Result<ReplyResult, ReplyError> {
        let Some(conversation) = conversation(&request.channel)? else {
            return self.history_named(client, request).await;
        };
        let range = match (&request.since, request.reverse) {
            (Some(since), false) => MessageRange::After(since.offset),
            (Some(since), true) => MessageRange::Before(since.offset),
            (None, false) => MessageRange::After(0),
            (None, true) => MessageRange::Newest,
        };
        // A limit of 0 requests only the position, a negative limit as many events as possible.
        let max = i64::from(crate::chat::conversations::MAX_PAGE);
        let limit = if request.limit < 0 { max } else { request.limit.min(max) };
        let limit = u16::try_from(limit).unwrap_or(0);
        let events = self.chat.events(&conversation, &client.user, range, limit).await.map_err(internal)?;
        let (events, membership) = events.map_err(|refusal| rpc::error_of(&refusal))?;
        let epoch = membership.epoch(&self.chat.inner.epoch);
        if request.since.as_ref().is_some_and(|since| !since.epoch.is_empty() && since.epoch != epoch) {
            return Err(ReplyError::UNRECOVERABLE_POSITION);
        }
        let publications = events.iter().map(Publication::from).collect();
        let offset = membership.sequence;
        Ok(ReplyResult::History(protocol::HistoryResult { publications, epoch, offset }))
    }

    async fn rpc(&mut self, client: &Client, call: &protocol::RpcRequest) -> Result<ReplyResult, ReplyError> {
        if call.method == "typing" && !self.typing_bucket.take(Instant::now()) {
            return Err(ReplyError::TOO_MANY_REQUESTS);
        }
        let data = Some(call.data.as_slice()).filter(|data| !data.is_empty());
        let data = data.map(protocol::client_json).transpose()?;
        let data = match rpc::call(&self.chat, &client.user, &call.method, data).await {
            Ok(result) => result.get().as_bytes().to_vec(),
            Err(error)
                if error.code == ReplyError::METHOD_NOT_FOUND.code && self.chat.has_proxy(ProxyKind::Rpc) =>
            {
                self.ask_for_result(client, call).await?.take_data()
            }
            Err(error) => return Err(error),
        };
        Ok(ReplyResult::Rpc(protocol::RpcResult { data }))
    }
}

/// The conversation of a channel; `None` if the channel is in a configured namespace, or unknown.
fn conversation(channel: &str) -> Result<Option<ConversationId>, ReplyError> {
    match channel.parse() {
        Ok(ChannelName::Conversation(id)) => Ok(Some(id)),
        Ok(ChannelName::Feed(_)) => {
            Err(ReplyError::NOT_AVAILABLE.with_detail("channel: not possible for user:<id>"))
        }
        Err(()) => Ok(None),
    }
}

/// Logs the error, unless the store does. The client gets a temporary error and can retry.
#[allow(clippy::needless_pass_by_value, reason = "made for `map_err`")]
pub(crate) fn internal(error: Error) -> ReplyError {
    if !error.is_reported() {
        tracing::warn!(%error, "failed to execute the command of a chat client");
    }
    ReplyError::INTERNAL
}
