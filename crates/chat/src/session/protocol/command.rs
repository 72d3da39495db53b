//! The commands of clients.

use prost::Message;
use serde::Deserialize;

use super::json::embedded;
use super::reply::Empty;

/// A command of a client. A command without an id is a pong, or does not expect a reply.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(crate) struct Command {
    #[prost(uint32, tag = "1")]
    pub(crate) id: u32,
    #[prost(message, optional, tag = "4")]
    pub(crate) connect: Option<ConnectRequest>,
    #[prost(message, optional, tag = "5")]
    pub(crate) subscribe: Option<SubscribeRequest>,
    #[prost(message, optional, tag = "6")]
    pub(crate) unsubscribe: Option<ChannelRequest>,
    #[prost(message, optional, tag = "7")]
    pub(crate) publish: Option<PublishRequest>,
    #[prost(message, optional, tag = "8")]
    pub(crate) presence: Option<ChannelRequest>,
    #[prost(message, optional, tag = "9")]
    pub(crate) presence_stats: Option<ChannelRequest>,
    #[prost(message, optional, tag = "10")]
    pub(crate) history: Option<HistoryRequest>,
    #[prost(message, optional, tag = "11")]
    pub(crate) ping: Option<Empty>,
    #[prost(message, optional, tag = "12")]
    pub(crate) send: Option<SendRequest>,
    #[prost(message, optional, tag = "13")]
    pub(crate) rpc: Option<RpcRequest>,
    #[prost(message, optional, tag = "14")]
    pub(crate) refresh: Option<RefreshRequest>,
    #[prost(message, optional, tag = "15")]
    pub(crate) sub_refresh: Option<SubRefreshRequest>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(crate) struct ConnectRequest {
    #[prost(string, tag = "1")]
    pub(crate) token: String,
    /// For the application.
    #[prost(bytes = "vec", tag = "2")]
    #[serde(deserialize_with = "embedded::optional")]
    pub(crate) data: Vec<u8>,
    #[prost(string, tag = "4")]
    pub(crate) name: String,
    #[prost(string, tag = "5")]
    pub(crate) version: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(crate) struct SubscribeRequest {
    #[prost(string, tag = "1")]
    pub(crate) channel: String,
    /// A token for this channel.
    #[prost(string, tag = "2")]
    pub(crate) token: String,
    #[prost(bool, tag = "3")]
    pub(crate) recover: bool,
    #[prost(string, tag = "6")]
    pub(crate) epoch: String,
    #[prost(uint64, tag = "7")]
    pub(crate) offset: u64,
    /// For the application.
    #[prost(bytes = "vec", tag = "8")]
    #[serde(deserialize_with = "embedded::optional")]
    pub(crate) data: Vec<u8>,
    #[prost(bool, tag = "11")]
    pub(crate) join_leave: bool,
    /// The value 2 requests an error instead of a reply without recovery.
    #[prost(uint64, tag = "14")]
    pub(crate) flag: u64,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(crate) struct ChannelRequest {
    #[prost(string, tag = "1")]
    pub(crate) channel: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
pub(crate) struct PublishRequest {
    #[prost(string, tag = "1")]
    pub(crate) channel: String,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(deserialize_with = "embedded::deserialize")]
    pub(crate) data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(crate) struct HistoryRequest {
    #[prost(string, tag = "1")]
    pub(crate) channel: String,
    #[prost(int64, tag = "7")]
    pub(crate) limit: i64,
    #[prost(message, optional, tag = "8")]
    pub(crate) since: Option<StreamPosition>,
    #[prost(bool, tag = "9")]
    pub(crate) reverse: bool,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(crate) struct StreamPosition {
    #[prost(uint64, tag = "1")]
    pub(crate) offset: u64,
    #[prost(string, tag = "2")]
    pub(crate) epoch: String,
}

/// A message that expects no reply. Its data is ignored.
#[derive(Clone, PartialEq, Message, Deserialize)]
pub(crate) struct SendRequest {}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(crate) struct RpcRequest {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "embedded::optional")]
    pub(crate) data: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(crate) method: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(crate) struct RefreshRequest {
    #[prost(string, tag = "1")]
    pub(crate) token: String,
}

#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default)]
pub(crate) struct SubRefreshRequest {
    #[prost(string, tag = "1")]
    pub(crate) channel: String,
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

impl Command {
    /// Whether the command has no request, as a pong.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self { id: self.id, ..Self::default() }
    }
}
