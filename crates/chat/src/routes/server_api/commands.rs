//! The commands of the server API.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream::{self, StreamExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::CONCURRENCY;
use super::error::{ApiError, Failure};
use crate::chat::server::{NodeSurvey, ServerSubscription};
use crate::hub::ControlCommand;
use crate::hub::channel_name::ChannelName;
use crate::keys::{IdempotencyKey, NamedChannel, SocketId, UserId};
use crate::namespace::{self, Namespace, Payload};
use crate::session::channels::{history_range, history_result};
use crate::session::protocol::{
    self, ClientInfo, Disconnect, Empty, HistoryRequest, PresenceResult, PresenceStatsResult, ReplyError,
    one_line,
};
use crate::{Chat, Config, Error};

/// The most channels of a broadcast, and the most clients that a disconnect spares.
const MAX_LISTED: usize = 1_000;
/// The longest data and info of a subscription, in bytes.
const MAX_SUBSCRIPTION_BYTES: usize = 2 * 1024;
/// The longest reason of a disconnect, in bytes.
const MAX_REASON_BYTES: usize = 123;

/// A publish or broadcast request.
#[derive(Deserialize)]
struct PublishRequest {
    #[serde(default)]
    channel: String,
    #[serde(default)]
    channels: Vec<String>,
    data: Option<Box<RawValue>>,
    #[serde(default)]
    b64data: String,
    #[serde(default)]
    skip_history: bool,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    #[serde(default)]
    idempotency_key: String,
}

#[derive(Serialize)]
struct PublishResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<String>,
}

#[derive(Serialize)]
struct BroadcastResult {
    responses: Vec<super::Reply>,
}

#[derive(Deserialize)]
struct SubscribeRequest {
    #[serde(default)]
    user: String,
    #[serde(default)]
    channel: String,
    #[serde(default)]
    client: String,
    info: Option<Box<RawValue>>,
    data: Option<Box<RawValue>>,
    #[serde(default)]
    expire_at: i64,
    recover_since: Option<protocol::StreamPosition>,
}

#[derive(Deserialize)]
struct UnsubscribeRequest {
    #[serde(default)]
    user: String,
    #[serde(default)]
    channel: String,
    #[serde(default)]
    client: String,
}

#[derive(Deserialize)]
struct DisconnectRequest {
    #[serde(default)]
    user: String,
    #[serde(default)]
    client: String,
    #[serde(default)]
    whitelist: Vec<String>,
    disconnect: Option<CloseReason>,
}

#[derive(Deserialize)]
struct CloseReason {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
struct RefreshRequest {
    #[serde(default)]
    user: String,
    #[serde(default)]
    client: String,
    #[serde(default)]
    expired: bool,
    #[serde(default)]
    expire_at: i64,
}

#[derive(Deserialize)]
struct ChannelRequest {
    #[serde(default)]
    channel: String,
}

#[derive(Deserialize)]
struct ChannelsRequest {
    #[serde(default)]
    pattern: String,
}

#[derive(Serialize)]
struct ChannelsResult {
    channels: BTreeMap<String, ChannelInfo>,
}

#[derive(Default, Serialize)]
struct ChannelInfo {
    num_clients: u64,
}

#[derive(Serialize)]
struct InfoResult {
    nodes: Vec<NodeSurvey>,
}

/// Executes a command.
pub(super) async fn run(chat: &Chat, method: &str, body: &[u8]) -> Result<Box<RawValue>, Failure> {
    match method {
        "publish" => result(&publish(chat, parse(body)?).await?),
        "broadcast" => result(&broadcast(chat, parse(body)?).await?),
        "subscribe" => result(&subscribe(chat, parse(body)?).await?),
        "unsubscribe" => result(&unsubscribe(chat, parse(body)?).await?),
        "disconnect" => result(&disconnect(chat, parse(body)?).await?),
        "refresh" => result(&refresh(chat, &parse(body)?).await?),
        "presence" => result(&PresenceResult::new(presence(chat, parse(body)?).await?)),
        "presence_stats" => result(&PresenceStatsResult::new(&presence(chat, parse(body)?).await?)),
        "history" => history(chat, parse(body)?).await,
        "history_remove" => {
            let (config, request) = (chat.config(), parse::<ChannelRequest>(body)?);
            let (channel, namespace) = named(&config, &request.channel)?;
            namespace.retention().ok_or(ReplyError::NOT_AVAILABLE)?;
            chat.inner.namespaces.history.remove(&channel).await?;
            result(&Empty {})
        }
        "channels" => result(&channels(chat, parse(body)?).await?),
        "info" => {
            parse::<serde::de::IgnoredAny>(body)?;
            result(&InfoResult { nodes: chat.survey(None).await? })
        }
        _ => Err(Failure::Unknown),
    }
}

async fn publish(chat: &Chat, request: PublishRequest) -> Result<PublishResult, Failure> {
    let data = data_of(&request)?;
    publish_to(chat, &chat.config(), &request.channel, &data, &request).await
}

async fn broadcast(chat: &Chat, mut request: PublishRequest) -> Result<BroadcastResult, Failure> {
    if request.channels.is_empty() || request.channels.len() > MAX_LISTED {
        return Err(invalid("channels", &format!("must have 1 to {MAX_LISTED} channels")));
    }
    let channels = std::mem::take(&mut request.channels);
    let (config, data) = (chat.config(), data_of(&request)?);
    let (config, data, request) = (&config, &data, &request);
    let published = stream::iter(channels).map(|channel| async move {
        match publish_to(chat, config, &channel, data, request).await.and_then(|done| result(&done)) {
            Ok(result) => super::Reply { result: Some(result), error: None },
            Err(failure) => super::Reply { result: None, error: Some(failure.into_error()) },
        }
    });
    Ok(BroadcastResult { responses: published.buffered(CONCURRENCY).collect().await })
}

async fn publish_to(
    chat: &Chat,
    config: &Config,
    channel: &str,
    data: &RawValue,
    request: &PublishRequest,
) -> Result<PublishResult, Failure> {
    let (channel, namespace) = named(config, channel)?;
    let once = match request.idempotency_key.as_str() {
        "" => None,
        key => {
            Some(IdempotencyKey::new(key).map_err(|error| invalid("idempotency_key", &error.to_string()))?)
        }
    };
    let payload = Payload { data, info: None, tags: Some(&request.tags) };
    let namespaces = &chat.inner.namespaces;
    let position =
        namespaces.publish(&channel, namespace, payload, request.skip_history, once.as_ref()).await?;
    let (offset, epoch) = position.map(|position| (position.offset, position.epoch)).unzip();
    Ok(PublishResult { offset, epoch })
}

/// The data of a publication. Clients receive JSON, so data in base64 must be JSON too.
fn data_of(request: &PublishRequest) -> Result<Box<RawValue>, Failure> {
    if request.b64data.is_empty() {
        return request.data.clone().ok_or_else(|| invalid("data", "is missing"));
    }
    let decoded = STANDARD.decode(&request.b64data).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let data = decoded.and_then(|json| RawValue::from_string(json).ok());
    data.ok_or_else(|| invalid("b64data", "must be JSON in base64"))
}

async fn subscribe(chat: &Chat, request: SubscribeRequest) -> Result<Empty, Failure> {
    let config = chat.config();
    let (channel, _) = named(&config, &request.channel)?;
    let json =
        |field: &str, json: Option<Box<RawValue>>| match json.map(|json| one_line(json.get()).into_owned()) {
            Some(json) if json.len() > MAX_SUBSCRIPTION_BYTES => {
                Err(invalid(field, &format!("at most {MAX_SUBSCRIPTION_BYTES} bytes")))
            }
            json => Ok(json),
        };
    let since = request.recover_since.map(|since| (since.epoch, since.offset));
    let subscription = ServerSubscription {
        user: user(&request.user)?,
        client: client(&request.client)?,
        channel,
        data: json("data", request.data)?,
        info: json("info", request.info)?,
        since,
        expires_s: (request.expire_at > 0).then_some(request.expire_at),
    };
    chat.run_everywhere(ControlCommand::Subscribe(subscription)).await?;
    Ok(Empty {})
}

async fn unsubscribe(chat: &Chat, request: UnsubscribeRequest) -> Result<Empty, Failure> {
    let is_known = request.channel.is_empty()
        || request.channel.parse::<ChannelName>().is_ok()
        || namespace::find(&chat.config(), &request.channel).is_some();
    if !is_known {
        return Err(ReplyError::UNKNOWN_CHANNEL.into());
    }
    let (user, client) = (user(&request.user)?, client(&request.client)?);
    chat.run_everywhere(ControlCommand::Unsubscribe { user, client, channel: request.channel }).await?;
    Ok(Empty {})
}

async fn disconnect(chat: &Chat, request: DisconnectRequest) -> Result<Empty, Failure> {
    if request.whitelist.len() > MAX_LISTED {
        return Err(invalid("whitelist", &format!("at most {MAX_LISTED} clients")));
    }
    let spared: Result<Vec<SocketId>, Failure> = request
        .whitelist
        .iter()
        .map(|id| client(id)?.ok_or_else(|| invalid("whitelist", "an empty id")))
        .collect();
    let (code, reason) = match request.disconnect {
        None => (Disconnect::FORCED.code, Disconnect::FORCED.reason.into_owned()),
        Some(CloseReason { code, reason }) => (code, reason),
    };
    if !(3000..=4999).contains(&code) || reason.len() > MAX_REASON_BYTES {
        return Err(invalid(
            "disconnect",
            "the code must be from 3000 to 4999, the reason at most 123 bytes",
        ));
    }
    let (user, client) = (user(&request.user)?, client(&request.client)?);
    chat.run_everywhere(ControlCommand::Disconnect { user, client, spared: spared?, code, reason }).await?;
    Ok(Empty {})
}

async fn refresh(chat: &Chat, request: &RefreshRequest) -> Result<Empty, Failure> {
    if !request.expired && request.expire_at <= 0 {
        // Centrifugo lets the connection never expire then.
        return Err(invalid("expire_at", "is missing; set it, or `expired`"));
    }
    let expires_s = (!request.expired).then_some(request.expire_at);
    let (user, client) = (user(&request.user)?, client(&request.client)?);
    chat.run_everywhere(ControlCommand::Refresh { user, client, expires_s }).await?;
    Ok(Empty {})
}

async fn presence(chat: &Chat, request: ChannelRequest) -> Result<Vec<ClientInfo>, Failure> {
    if let Ok(ChannelName::Conversation(id)) = request.channel.parse() {
        return Ok(chat.conversation_clients(&id).await?);
    }
    let config = chat.config();
    let (channel, namespace) = named(&config, &request.channel)?;
    if !namespace.presence {
        return Err(ReplyError::NOT_AVAILABLE.into());
    }
    Ok(chat.inner.namespaces.subscribers.list(&channel).await?)
}

async fn history(chat: &Chat, request: HistoryRequest) -> Result<Box<RawValue>, Failure> {
    let config = chat.config();
    let (channel, namespace) = named(&config, &request.channel)?;
    let retention = namespace.retention().ok_or(ReplyError::NOT_AVAILABLE)?;
    let (range, limit) = history_range(&request);
    let page = chat.inner.namespaces.history.read(&channel, retention, range, limit).await?;
    result(&history_result(&request, page)?)
}

async fn channels(chat: &Chat, request: ChannelsRequest) -> Result<ChannelsResult, Failure> {
    let pattern = if request.pattern.is_empty() { "*".to_owned() } else { request.pattern };
    let mut channels: BTreeMap<String, ChannelInfo> = BTreeMap::new();
    for node in chat.survey(Some(pattern)).await? {
        for (channel, clients) in node.channels {
            channels.entry(channel).or_default().num_clients += clients;
        }
    }
    Ok(ChannelsResult { channels })
}

/// The channel and its namespace. Conversations and feeds have their own API.
fn named<'a>(config: &'a Config, channel: &str) -> Result<(NamedChannel, &'a Namespace), Failure> {
    if channel.is_empty() {
        return Err(invalid("channel", "is missing"));
    }
    if channel.parse::<ChannelName>().is_ok() {
        let detail = "use /api/v1/chat for conversations and feeds";
        return Err(ReplyError::NOT_AVAILABLE.with_detail(detail).into());
    }
    namespace::find(config, channel).ok_or_else(|| ReplyError::UNKNOWN_CHANNEL.into())
}

fn user(id: &str) -> Result<UserId, Failure> {
    UserId::new(id).map_err(|error| invalid("user", &error.to_string()))
}

/// The id of a connection; `None` if it is empty.
fn client(id: &str) -> Result<Option<SocketId>, Failure> {
    match id {
        "" => Ok(None),
        id => SocketId::new(id).map(Some).map_err(|error| invalid("client", &error.to_string())),
    }
}

fn invalid(field: &str, reason: &str) -> Failure {
    Failure::Refused(ApiError::bad_request(&format!("{field}: {reason}")))
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    // An empty body is an empty request.
    let body = if body.is_empty() { b"{}" } else { body };
    protocol::parse(body).map_err(Failure::Malformed)
}

fn result(result: &impl Serialize) -> Result<Box<RawValue>, Failure> {
    Ok(to_raw_value(result).map_err(Error::from)?)
}
