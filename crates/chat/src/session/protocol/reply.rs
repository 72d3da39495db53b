//! Replies to commands, and what they contain.

use std::collections::BTreeMap;

use prost::Message;
use serde::{Deserialize, Serialize};

use super::code::ReplyError;
use super::json::{embedded, is_zero};
use super::push::Push;
use crate::chat::now_s;
use crate::conversation::event::Event;

/// A reply to a command, or a push. A ping is an empty reply.
#[derive(Clone, PartialEq, Message, Serialize)]
pub(crate) struct Reply {
    #[prost(uint32, tag = "1")]
    #[serde(skip_serializing_if = "is_zero")]
    id: u32,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorReply>,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    push: Option<Push>,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    connect: Option<ConnectResult>,
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    subscribe: Option<SubscribeResult>,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    unsubscribe: Option<Empty>,
    #[prost(message, optional, tag = "8")]
    #[serde(skip_serializing_if = "Option::is_none")]
    publish: Option<Empty>,
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "Option::is_none")]
    presence: Option<PresenceResult>,
    #[prost(message, optional, tag = "10")]
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_stats: Option<PresenceStatsResult>,
    #[prost(message, optional, tag = "11")]
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<HistoryResult>,
    #[prost(message, optional, tag = "12")]
    #[serde(skip_serializing_if = "Option::is_none")]
    ping: Option<Empty>,
    #[prost(message, optional, tag = "13")]
    #[serde(skip_serializing_if = "Option::is_none")]
    rpc: Option<RpcResult>,
    #[prost(message, optional, tag = "14")]
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh: Option<ConnectResult>,
    #[prost(message, optional, tag = "15")]
    #[serde(skip_serializing_if = "Option::is_none")]
    sub_refresh: Option<SubRefreshResult>,
}

/// The result in a reply to a command.
#[derive(Debug)]
pub(crate) enum ReplyResult {
    Error(ReplyError),
    Connect(ConnectResult),
    Subscribe(SubscribeResult),
    Unsubscribe,
    Publish,
    Presence(PresenceResult),
    PresenceStats(PresenceStatsResult),
    History(HistoryResult),
    Ping,
    Rpc(RpcResult),
    Refresh(ConnectResult),
    SubRefresh(SubRefreshResult),
}

#[derive(Clone, PartialEq, Message, Serialize)]
struct ErrorReply {
    #[prost(uint32, tag = "1")]
    code: u32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(bool, tag = "3")]
    #[serde(skip_serializing_if = "is_zero")]
    temporary: bool,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct Empty {}

#[derive(Clone, PartialEq, Message, Serialize)]
pub(crate) struct ConnectResult {
    #[prost(string, tag = "1")]
    pub(crate) client: String,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    #[prost(bool, tag = "3")]
    pub(crate) expires: bool,
    #[prost(uint32, tag = "4")]
    pub(crate) ttl: u32,
    /// Data of the application.
    #[prost(bytes = "vec", tag = "5")]
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "embedded::serialize")]
    pub(crate) data: Vec<u8>,
    #[prost(uint32, tag = "7")]
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) ping: u32,
    #[prost(bool, tag = "8")]
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) pong: bool,
    /// With which the client sends commands, if it cannot use its connection.
    #[prost(string, tag = "9")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) session: String,
    #[prost(string, tag = "10")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) node: String,
}

/// The result of a subscription, also as a push.
#[derive(Clone, PartialEq, Message, Serialize)]
pub(crate) struct SubscribeResult {
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) expires: bool,
    #[prost(uint32, tag = "2")]
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) ttl: u32,
    #[prost(bool, tag = "3")]
    pub(crate) recoverable: bool,
    #[prost(bool, tag = "10")]
    pub(crate) positioned: bool,
    #[prost(string, tag = "6")]
    pub(crate) epoch: String,
    #[prost(uint64, tag = "9")]
    pub(crate) offset: u64,
    #[prost(message, repeated, tag = "7")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) publications: Vec<Publication>,
    #[prost(bool, tag = "8")]
    pub(crate) recovered: bool,
    #[prost(bool, tag = "12")]
    pub(crate) was_recovering: bool,
    #[prost(bytes = "vec", tag = "11")]
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "embedded::serialize")]
    pub(crate) data: Vec<u8>,
}

/// A publication as a subscriber receives it. Those that are not stored have no offset.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct Publication {
    #[prost(bytes = "vec", tag = "4")]
    #[serde(with = "embedded")]
    pub(crate) data: Vec<u8>,
    /// The client that published it.
    #[prost(message, optional, tag = "5")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) info: Option<ClientInfo>,
    #[prost(uint64, tag = "6")]
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) offset: u64,
    #[prost(btree_map = "string, string", tag = "7")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) tags: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct ClientInfo {
    #[prost(string, tag = "1")]
    pub(crate) user: String,
    #[prost(string, tag = "2")]
    pub(crate) client: String,
    /// From the token of a subscription.
    #[prost(bytes = "vec", tag = "4")]
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "embedded::serialize",
        deserialize_with = "embedded::optional"
    )]
    pub(crate) chan_info: Vec<u8>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub(crate) struct PresenceResult {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(crate) presence: BTreeMap<String, ClientInfo>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub(crate) struct PresenceStatsResult {
    #[prost(uint32, tag = "1")]
    pub(crate) num_clients: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) num_users: u32,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub(crate) struct HistoryResult {
    #[prost(message, repeated, tag = "1")]
    pub(crate) publications: Vec<Publication>,
    #[prost(string, tag = "2")]
    pub(crate) epoch: String,
    #[prost(uint64, tag = "3")]
    pub(crate) offset: u64,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub(crate) struct SubRefreshResult {
    #[prost(bool, tag = "1")]
    pub(crate) expires: bool,
    #[prost(uint32, tag = "2")]
    pub(crate) ttl: u32,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub(crate) struct RpcResult {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(serialize_with = "embedded::serialize")]
    pub(crate) data: Vec<u8>,
}

/// The time that is left until then, in seconds; at least one.
pub(crate) fn seconds_until(unix_s: i64) -> u32 {
    u32::try_from(unix_s.saturating_sub(now_s()).max(1)).unwrap_or(u32::MAX)
}

impl Reply {
    /// The reply to the command with this id.
    pub(crate) fn new(id: u32, result: ReplyResult) -> Self {
        let mut reply = Self { id, ..Self::default() };
        match result {
            ReplyResult::Error(ReplyError { code, message, temporary }) => {
                reply.error = Some(ErrorReply { code, message: message.into_owned(), temporary });
            }
            ReplyResult::Connect(result) => reply.connect = Some(result),
            ReplyResult::Subscribe(result) => reply.subscribe = Some(result),
            ReplyResult::Unsubscribe => reply.unsubscribe = Some(Empty {}),
            ReplyResult::Publish => reply.publish = Some(Empty {}),
            ReplyResult::Presence(result) => reply.presence = Some(result),
            ReplyResult::PresenceStats(result) => reply.presence_stats = Some(result),
            ReplyResult::History(result) => reply.history = Some(result),
            ReplyResult::Ping => reply.ping = Some(Empty {}),
            ReplyResult::Rpc(result) => reply.rpc = Some(result),
            ReplyResult::Refresh(result) => reply.refresh = Some(result),
            ReplyResult::SubRefresh(result) => reply.sub_refresh = Some(result),
        }
        reply
    }
}

impl From<Push> for Reply {
    fn from(push: Push) -> Self {
        Self { push: Some(push), ..Self::default() }
    }
}

impl From<&Event> for Publication {
    fn from(event: &Event) -> Self {
        Self { data: event.payload.clone().into_bytes(), offset: event.sequence, ..Self::default() }
    }
}

impl PresenceResult {
    pub(crate) fn new(clients: impl IntoIterator<Item = ClientInfo>) -> Self {
        Self { presence: clients.into_iter().map(|info| (info.client.clone(), info)).collect() }
    }
}

impl PresenceStatsResult {
    pub(crate) fn new<'a>(clients: impl IntoIterator<Item = &'a ClientInfo>) -> Self {
        let mut users = std::collections::HashSet::new();
        let num_clients = clients.into_iter().map(|info| users.insert(info.user.as_str())).count();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { num_clients: count(num_clients), num_users: count(users.len()) }
    }
}
