//! Commands on channels of configured namespaces.

use std::sync::Arc;

use super::protocol::{
    self, ClientInfo, HistoryRequest, HistoryResult, PresenceResult, PublishRequest, Reply, ReplyError,
    ReplyResult, SubRefreshRequest, SubRefreshResult, SubscribeRequest, SubscribeResult,
};
use super::token::{BadToken, VerifiedSubscription};
use super::{REJECT_UNRECOVERED, Session, internal};
use crate::chat::now_s;
use crate::hub::Client;
use crate::hub::channel_name::ChannelName;
use crate::keys::NamedChannel;
use crate::namespace::{
    self, Access, Namespace, NewSubscription, Payload, PublishFailure, Stream, SubscribeError,
};
use crate::proxy::SubscribeGrant;
use crate::store::history::{HistoryPage, HistoryRange, Position};

/// The most publications of one history reply.
pub(crate) const MAX_HISTORY_PAGE: u32 = 300;

impl Session {
    pub(super) async fn subscribe_named(
        &self,
        client: &Arc<Client>,
        id: u32,
        request: SubscribeRequest,
    ) -> Result<(), ReplyError> {
        let config = self.chat.config();
        let (channel, namespace) = namespace::find(&config, &request.channel).ok_or_else(unknown_channel)?;
        let mut admission = Admission::default();
        if !request.token.is_empty() {
            admission = self.verify_subscription(client, &channel, &request.token).await?.into();
        } else if namespace.proxy_subscribe && !namespace::is_private(&channel) {
            admission = self.ask_to_subscribe(client, &request).await?.into();
        } else if !namespace.admits(&channel, &client.user) {
            return Err(ReplyError::PERMISSION_DENIED);
        }
        let sees_presence = namespace.allows(Access::Presence, &channel, true);
        let since = request.recover.then_some(Position { epoch: request.epoch, offset: request.offset });
        let (ttl, expires) = (ttl_of(admission.refresh_s), admission.refresh_s.is_some());
        let new = NewSubscription {
            client,
            channel: &channel,
            namespace,
            since,
            gets_join_leave: namespace.join_leave
                && (namespace.force_push_join_leave || (request.join_leave && sees_presence)),
            chan_info: admission.info,
            expires_s: admission.expires_s,
        };
        let rejects = request.flag & REJECT_UNRECOVERED != 0;
        let reply = |stream: Stream| {
            if request.recover && !stream.recovered && rejects {
                return Err(SubscribeError::Unrecoverable);
            }
            let mut result = subscribe_result(stream);
            result.data = admission.data;
            (result.was_recovering, result.expires, result.ttl) = (request.recover, expires, ttl);
            Ok(vec![Reply::new(id, ReplyResult::Subscribe(result))])
        };
        self.chat.inner.namespaces.subscribe(new, reply).await.map_err(|error| match error {
            SubscribeError::AlreadySubscribed => ReplyError::ALREADY_SUBSCRIBED,
            SubscribeError::Interrupted => ReplyError::INTERNAL,
            SubscribeError::Unrecoverable => ReplyError::UNRECOVERABLE_POSITION,
            SubscribeError::Failed(error) => internal(error),
        })
    }

    /// The token of a subscription must be for this channel and this user.
    async fn verify_subscription(
        &self,
        client: &Client,
        channel: &NamedChannel,
        token: &str,
    ) -> Result<VerifiedSubscription, ReplyError> {
        match self.chat.inner.tokens.verify_subscription(token, now_s()).await {
            Ok(verified) if verified.user == client.user && verified.channel == *channel => Ok(verified),
            Err(BadToken::Expired) => Err(ReplyError::TOKEN_EXPIRED),
            Err(BadToken::Unavailable) => Err(ReplyError::INTERNAL),
            Ok(_) | Err(BadToken::Invalid) => Err(ReplyError::PERMISSION_DENIED),
        }
    }

    pub(super) async fn refresh_subscription(
        &self,
        client: &Client,
        request: &SubRefreshRequest,
    ) -> Result<ReplyResult, ReplyError> {
        if request.channel.parse::<ChannelName>().is_ok() {
            // Conversations and feeds do not have their own tokens.
            return Err(ReplyError::NOT_AVAILABLE);
        }
        let config = self.chat.config();
        let (channel, _) = namespace::find(&config, &request.channel).ok_or_else(unknown_channel)?;
        let verified = self.verify_subscription(client, &channel, &request.token).await?;
        let expires_s = verified.expires_s;
        if !self.chat.inner.namespaces.set_expiry(&channel, &client.socket, expires_s) {
            return Err(ReplyError::PERMISSION_DENIED);
        }
        Ok(ReplyResult::SubRefresh(SubRefreshResult { expires: true, ttl: ttl_of(Some(expires_s)) }))
    }

    pub(super) async fn unsubscribe_named(
        &self,
        client: &Client,
        channel: &str,
    ) -> Result<ReplyResult, ReplyError> {
        let config = self.chat.config();
        let (channel, _) = namespace::find(&config, channel).ok_or_else(unknown_channel)?;
        self.chat.inner.namespaces.unsubscribe(&channel, &client.socket).await;
        Ok(ReplyResult::Unsubscribe)
    }

    pub(super) async fn publish_named(
        &self,
        client: &Client,
        request: &PublishRequest,
    ) -> Result<ReplyResult, ReplyError> {
        let config = self.chat.config();
        let (channel, namespace) = namespace::find(&config, &request.channel).ok_or_else(unknown_channel)?;
        let (mut decided, mut skip_history) = (Vec::new(), false);
        if namespace.proxy_publish {
            let mut grant = self.ask_to_publish(client, request).await?;
            (decided, skip_history) = (grant.take_data(), grant.skip_history);
        } else {
            self.permit(client, &config, &request.channel, Access::Publish)?;
        }
        let info = ClientInfo {
            user: client.user.to_string(),
            client: client.socket.to_string(),
            ..ClientInfo::default()
        };
        let data = protocol::client_json(if decided.is_empty() { &request.data } else { &decided })?;
        let payload = Payload { data, info: Some(&info), tags: None };
        let published =
            self.chat.inner.namespaces.publish(&channel, namespace, payload, skip_history, None).await;
        published.map_err(|failure| match failure {
            PublishFailure::TooLarge { what, max } => {
                ReplyError::BAD_REQUEST.with_detail(format_args!("{what}: at most {max} bytes"))
            }
            PublishFailure::Failed(error) => internal(error),
        })?;
        Ok(ReplyResult::Publish)
    }

    pub(super) async fn presence_named(
        &self,
        client: &Client,
        channel: &str,
    ) -> Result<PresenceResult, ReplyError> {
        let config = self.chat.config();
        let (channel, _) = self.permit(client, &config, channel, Access::Presence)?;
        let clients = self.chat.inner.namespaces.subscribers.list(&channel).await.map_err(internal)?;
        Ok(PresenceResult::new(clients))
    }

    pub(super) async fn history_named(
        &self,
        client: &Client,
        request: HistoryRequest,
    ) -> Result<ReplyResult, ReplyError> {
        let config = self.chat.config();
        let (channel, namespace) = self.permit(client, &config, &request.channel, Access::History)?;
        let retention = namespace.retention().ok_or(ReplyError::NOT_AVAILABLE)?;
        let (range, limit) = history_range(&request);
        let page = self.chat.inner.namespaces.history.read(&channel, retention, range, limit).await;
        Ok(ReplyResult::History(history_result(&request, page.map_err(internal)?)?))
    }

    /// The channel and its namespace, if the client may do this.
    fn permit<'a>(
        &self,
        client: &Client,
        config: &'a crate::Config,
        channel: &str,
        access: Access,
    ) -> Result<(NamedChannel, &'a Namespace), ReplyError> {
        let (channel, namespace) = namespace::find(config, channel).ok_or_else(unknown_channel)?;
        let is_available = match access {
            Access::Publish => true,
            Access::History => namespace.retention().is_some(),
            Access::Presence => namespace.presence,
        };
        if !is_available {
            return Err(ReplyError::NOT_AVAILABLE);
        }
        let is_subscribed = self.chat.inner.namespaces.is_subscribed(&channel, &client.socket);
        if namespace.allows(access, &channel, is_subscribed) {
            Ok((channel, namespace))
        } else {
            Err(ReplyError::PERMISSION_DENIED)
        }
    }
}

/// What the token of a subscription or the application grants.
#[derive(Default)]
struct Admission {
    expires_s: Option<i64>,
    /// When the client must refresh its token.
    refresh_s: Option<i64>,
    /// For the client.
    data: Vec<u8>,
    info: Vec<u8>,
}

impl From<VerifiedSubscription> for Admission {
    fn from(verified: VerifiedSubscription) -> Self {
        let expires_s = Some(verified.expires_s);
        Self { expires_s, refresh_s: expires_s, info: verified.info, data: Vec::new() }
    }
}

/// The client does not refresh such a subscription: when it ends, the client subscribes again.
impl From<SubscribeGrant> for Admission {
    fn from(mut grant: SubscribeGrant) -> Self {
        let expires_s = Some(grant.expire_at).filter(|expire_at| *expire_at != 0);
        Self { expires_s, refresh_s: None, data: grant.take_data(), info: grant.take_info() }
    }
}

fn ttl_of(expires_s: Option<i64>) -> u32 {
    expires_s.map_or(0, protocol::seconds_until)
}

pub(crate) fn subscribe_result(stream: Stream) -> SubscribeResult {
    let Position { epoch, offset } = stream.top.filter(|_| stream.is_recoverable).unwrap_or_default();
    SubscribeResult {
        recoverable: stream.is_recoverable,
        positioned: stream.is_recoverable,
        epoch,
        offset,
        publications: stream.publications,
        recovered: stream.recovered,
        ..SubscribeResult::default()
    }
}

/// The part of a history that a request asks for. A limit of 0 requests only the position, a negative one as many publications
/// as possible.
pub(crate) fn history_range(request: &HistoryRequest) -> (HistoryRange, u32) {
    let range = match (&request.since, request.reverse) {
        (Some(since), false) => HistoryRange::After(since.offset),
        (Some(since), true) => HistoryRange::Before(since.offset),
        (None, false) => HistoryRange::Oldest,
        (None, true) => HistoryRange::Newest,
    };
    let limit =
        if request.limit < 0 { MAX_HISTORY_PAGE } else { u32::try_from(request.limit).unwrap_or(u32::MAX) };
    (range, limit.min(MAX_HISTORY_PAGE))
}

/// The result of a history request. A position whose next publication is lost is an error.
pub(crate) fn history_result(
    request: &HistoryRequest,
    mut page: HistoryPage,
) -> Result<HistoryResult, ReplyError> {
    if let Some(since) = &request.since {
        let is_same_stream = since.epoch.is_empty() || since.epoch == page.top.epoch;
        let is_complete = request.reverse || request.limit == 0 || page.covers(since.offset);
        if !is_same_stream || !is_complete {
            return Err(ReplyError::UNRECOVERABLE_POSITION);
        }
    }
    if request.reverse {
        page.publications.reverse();
    }
    let Position { epoch, offset } = page.top;
    Ok(HistoryResult { publications: page.publications, epoch, offset })
}

fn unknown_channel() -> ReplyError {
    ReplyError::UNKNOWN_CHANNEL
        .with_detail("channel: must be conv:<id>, user:<id>, or in a namespace of the configuration")
}
