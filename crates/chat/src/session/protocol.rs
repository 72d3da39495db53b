//! The Centrifugo client protocol in JSON: commands, replies, pushes, and error codes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use bytes::Bytes;
use hob_units::plain_serde_error;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::conversation::event::Event;
use crate::hub::channel_name::ChannelName;
use crate::keys::UserId;

/// A command of a client. A command without an id is a pong, or does not expect a reply.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Command {
    pub(crate) id: u32,
    pub(crate) connect: Option<ConnectRequest>,
    pub(crate) subscribe: Option<SubscribeRequest>,
    pub(crate) unsubscribe: Option<ChannelRequest>,
    pub(crate) publish: Option<PublishRequest>,
    pub(crate) presence: Option<ChannelRequest>,
    pub(crate) presence_stats: Option<ChannelRequest>,
    pub(crate) history: Option<HistoryRequest>,
    pub(crate) ping: Option<EmptyRequest>,
    pub(crate) send: Option<Box<RawValue>>,
    pub(crate) rpc: Option<RpcRequest>,
    pub(crate) refresh: Option<RefreshRequest>,
    pub(crate) sub_refresh: Option<SubRefreshRequest>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ConnectRequest {
    pub(crate) token: String,
    pub(crate) name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SubscribeRequest {
    pub(crate) channel: String,
    pub(crate) recover: bool,
    pub(crate) epoch: String,
    pub(crate) offset: u64,
    pub(crate) join_leave: bool,
    /// A token for this channel.
    pub(crate) token: String,
    /// The value 2 requests an error instead of a reply without recovery.
    pub(crate) flag: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ChannelRequest {
    pub(crate) channel: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PublishRequest {
    pub(crate) channel: String,
    pub(crate) data: Box<RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HistoryRequest {
    pub(crate) channel: String,
    pub(crate) limit: i64,
    pub(crate) since: Option<StreamPosition>,
    pub(crate) reverse: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StreamPosition {
    pub(crate) offset: u64,
    pub(crate) epoch: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RpcRequest {
    #[serde(default)]
    pub(crate) method: String,
    #[serde(default)]
    pub(crate) data: Option<Box<RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RefreshRequest {
    pub(crate) token: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SubRefreshRequest {
    pub(crate) channel: String,
    pub(crate) token: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct EmptyRequest {}

/// The result in a reply to a command.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReplyResult {
    Error(ReplyError),
    Connect(ConnectResult),
    Subscribe(SubscribeResult),
    Unsubscribe(Empty),
    Publish(Empty),
    Presence(PresenceResult),
    PresenceStats(PresenceStatsResult),
    History(HistoryResult),
    Ping(Empty),
    Rpc(RpcResult),
    Refresh(ConnectResult),
    SubRefresh(SubRefreshResult),
    /// Of a channel in a configured namespace.
    #[serde(rename = "subscribe")]
    SubscribeNamed(NamedSubscribeResult),
    #[serde(rename = "history")]
    HistoryNamed(NamedHistoryResult),
}

#[derive(Debug, Serialize)]
struct Reply<'a> {
    id: u32,
    #[serde(flatten)]
    result: &'a ReplyResult,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Empty {}

#[derive(Debug, Default, Serialize)]
pub(crate) struct ConnectResult {
    pub(crate) client: String,
    pub(crate) version: &'static str,
    pub(crate) expires: bool,
    pub(crate) ttl: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ping: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pong: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct SubscribeResult {
    pub(crate) recoverable: bool,
    pub(crate) positioned: bool,
    pub(crate) epoch: String,
    pub(crate) offset: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) publications: Vec<Publication>,
    pub(crate) recovered: bool,
    pub(crate) was_recovering: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Box<RawValue>>,
}

/// An event as a subscriber receives it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Publication {
    pub(crate) data: Box<RawValue>,
    pub(crate) offset: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClientInfo {
    pub(crate) user: String,
    pub(crate) client: String,
    /// From the token of a subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) chan_info: Option<Box<RawValue>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct PresenceResult {
    pub(crate) presence: BTreeMap<String, ClientInfo>,
}

#[derive(Debug, Serialize)]
pub(crate) struct PresenceStatsResult {
    pub(crate) num_clients: usize,
    pub(crate) num_users: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct HistoryResult {
    pub(crate) publications: Vec<Publication>,
    pub(crate) epoch: String,
    pub(crate) offset: u64,
}

/// The result of a subscription to a channel in a configured namespace, also as a push.
#[derive(Debug, Default, Serialize)]
pub(crate) struct NamedSubscribeResult {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) expires: bool,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) ttl: u64,
    pub(crate) recoverable: bool,
    pub(crate) positioned: bool,
    pub(crate) epoch: String,
    pub(crate) offset: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) publications: Vec<Box<RawValue>>,
    pub(crate) recovered: bool,
    pub(crate) was_recovering: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Box<RawValue>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct NamedHistoryResult {
    pub(crate) publications: Vec<Box<RawValue>>,
    pub(crate) epoch: String,
    pub(crate) offset: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct SubRefreshResult {
    pub(crate) expires: bool,
    pub(crate) ttl: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct RpcResult {
    pub(crate) data: Box<RawValue>,
}

/// An error in a reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ReplyError {
    pub(crate) code: u32,
    pub(crate) message: Cow<'static, str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    temporary: bool,
}

impl ReplyError {
    pub(crate) const INTERNAL: Self = Self::temporary_error(100, "internal server error");
    pub(crate) const UNKNOWN_CHANNEL: Self = Self::permanent_error(102, "unknown channel");
    pub(crate) const PERMISSION_DENIED: Self = Self::permanent_error(103, "permission denied");
    pub(crate) const METHOD_NOT_FOUND: Self = Self::permanent_error(104, "method not found");
    pub(crate) const ALREADY_SUBSCRIBED: Self = Self::permanent_error(105, "already subscribed");
    pub(crate) const LIMIT_EXCEEDED: Self = Self::permanent_error(106, "limit exceeded");
    pub(crate) const BAD_REQUEST: Self = Self::permanent_error(107, "bad request");
    pub(crate) const NOT_AVAILABLE: Self = Self::permanent_error(108, "not available");
    pub(crate) const TOKEN_EXPIRED: Self = Self::permanent_error(109, "token expired");
    pub(crate) const TOO_MANY_REQUESTS: Self = Self::temporary_error(111, "too many requests");
    pub(crate) const UNRECOVERABLE_POSITION: Self = Self::permanent_error(112, "unrecoverable position");
    pub(crate) const NOT_FOUND: Self = Self::permanent_error(404, "not found");
    pub(crate) const CONFLICT: Self = Self::permanent_error(409, "already exists");

    const fn permanent_error(code: u32, message: &'static str) -> Self {
        Self { code, message: Cow::Borrowed(message), temporary: false }
    }

    const fn temporary_error(code: u32, message: &'static str) -> Self {
        Self { code, message: Cow::Borrowed(message), temporary: true }
    }

    /// The same error with details: `bad request: content: must not be empty`.
    pub(crate) fn with_detail(self, detail: impl Display) -> Self {
        Self { message: format!("{}: {detail}", self.message).into(), ..self }
    }
}

/// The longest reason in a close frame.
const MAX_REASON_BYTES: usize = 123;

/// Why a connection is closed. Clients reconnect on codes below 3500.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Disconnect {
    pub(crate) code: u16,
    pub(crate) reason: Cow<'static, str>,
}

impl Disconnect {
    /// A code of the WebSocket protocol. Clients do not reconnect.
    pub(crate) const TOO_LARGE: Self = Self::new(1009, "frame too large");
    pub(crate) const SHUTDOWN: Self = Self::new(3001, "shutdown");
    pub(crate) const SERVER_ERROR: Self = Self::new(3004, "internal server error");
    pub(crate) const EXPIRED: Self = Self::new(3005, "connection expired");
    pub(crate) const SLOW: Self = Self::new(3008, "slow");
    pub(crate) const NO_PONG: Self = Self::new(3012, "no pong");
    pub(crate) const TOO_MANY_REQUESTS: Self = Self::new(3013, "too many requests");
    pub(crate) const INVALID_TOKEN: Self = Self::new(3500, "invalid token");
    pub(crate) const BAD_REQUEST: Self = Self::new(3501, "bad request");
    pub(crate) const STALE: Self = Self::new(3502, "stale");
    pub(crate) const FORCED: Self = Self::new(3503, "force disconnect");
    pub(crate) const CONNECTION_LIMIT: Self = Self::new(3504, "connection limit");

    pub(crate) const PERMISSION_DENIED: Self = Self::new(3507, "permission denied");

    const fn new(code: u16, reason: &'static str) -> Self {
        Self { code, reason: Cow::Borrowed(reason) }
    }

    /// The same reason with details. The WebSocket protocol limits its length, so the end of a long one is cut off.
    pub(crate) fn with_detail(self, detail: impl Display) -> Self {
        let mut reason = format!("{}: {detail}", self.reason);
        reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
        Self { reason: reason.into(), ..self }
    }
}

/// Why a subscription is ended. Clients subscribe again on codes from 2500.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Unsubscribe {
    code: u32,
    reason: &'static str,
}

impl Unsubscribe {
    pub(crate) const SERVER: Self = Self { code: 2000, reason: "server unsubscribe" };
    pub(crate) const INSUFFICIENT: Self = Self { code: 2500, reason: "insufficient state" };
    pub(crate) const EXPIRED: Self = Self { code: 2501, reason: "expired" };
}

impl From<&Event> for Publication {
    fn from(event: &Event) -> Self {
        Self { data: raw(&event.payload), offset: event.sequence }
    }
}

/// Parses the commands of a frame, as a connection does before it executes them; returns how many there are. For fuzzing.
#[doc(hidden)]
pub fn parse_frame(frame: &[u8]) -> Result<usize, String> {
    let mut lines = frame.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.try_fold(0, |found, line| parse::<Command>(line).map(|_| found + 1))
}

/// Parses JSON of a client. The error names the field.
pub(crate) fn parse<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, String> {
    // serde also reads an array as an object, by the order of the fields.
    if json.trim_ascii_start().starts_with(b"[") {
        return Err("expected an object".to_owned());
    }
    // Tracking the field costs time, so it is only done for the message of an error.
    serde_json::from_slice(json).map_err(|error| {
        let tracked: Result<T, _> =
            serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(json));
        let message = plain_serde_error(&error.to_string());
        match tracked.as_ref().map_err(|error| error.path().to_string()).err().as_deref() {
            None | Some(".") => message,
            Some(field) => format!("{field}: {message}"),
        }
    })
}

/// Valid JSON without line breaks, which separate the messages of a frame. In JSON they occur only between values.
pub(crate) fn one_line(json: &str) -> Cow<'_, str> {
    if json.contains(['\n', '\r']) { json.replace(['\n', '\r'], " ").into() } else { json.into() }
}

/// Wraps JSON text. Text that is not valid JSON would break the frame, and becomes `null`.
pub(crate) fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// A ping from the server, and the client's pong.
pub(crate) const PING: &str = "{}";

pub(crate) fn reply(id: u32, result: &ReplyResult) -> Bytes {
    serde_json::to_vec(&Reply { id, result }).unwrap_or_default().into()
}

pub(crate) fn publication_push(channel: &ChannelName, publication: &Publication) -> Bytes {
    let data = publication.data.get();
    let mut frame = String::with_capacity(data.len() + 96);
    let _ = write!(
        frame,
        r#"{{"push":{{"channel":{},"pub":{{"data":{data},"offset":{}}}}}}}"#,
        json(channel),
        publication.offset
    );
    frame.into()
}

/// A publication that is not stored and has no offset.
pub(crate) fn transient_push(channel: &ChannelName, data: &str) -> Bytes {
    format!(r#"{{"push":{{"channel":{},"pub":{{"data":{data}}}}}}}"#, json(channel)).into()
}

/// A join or leave push.
pub(crate) fn presence_push(channel: &ChannelName, user: &UserId, online: bool) -> Bytes {
    let kind = if online { "join" } else { "leave" };
    let user = json(user);
    let channel = json(channel);
    format!(r#"{{"push":{{"channel":{channel},"{kind}":{{"info":{{"user":{user},"client":""}}}}}}}}"#).into()
}

pub(crate) fn unsubscribe_push(channel: &ChannelName, reason: Unsubscribe) -> Bytes {
    let reason = serde_json::to_string(&reason).unwrap_or_default();
    format!(r#"{{"push":{{"channel":{},"unsubscribe":{reason}}}}}"#, json(channel)).into()
}

/// A push of any kind to the subscribers of a channel.
pub(crate) fn push(channel: &impl ToString, kind: &str, content: &str) -> Bytes {
    format!(r#"{{"push":{{"channel":{},"{kind}":{content}}}}}"#, json(channel)).into()
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn json(text: &impl ToString) -> String {
    serde_json::Value::from(text.to_string()).to_string()
}

impl Command {
    /// Whether the command has no request, as a pong.
    pub(crate) fn is_empty(&self) -> bool {
        self.connect.is_none()
            && self.subscribe.is_none()
            && self.unsubscribe.is_none()
            && self.publish.is_none()
            && self.presence.is_none()
            && self.presence_stats.is_none()
            && self.history.is_none()
            && self.ping.is_none()
            && self.rpc.is_none()
            && self.refresh.is_none()
            && self.sub_refresh.is_none()
    }
}
