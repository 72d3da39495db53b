//! Pushes: messages that are not replies.

use prost::Message;
use serde::{Deserialize, Serialize};

use super::code::{Disconnect, Unsubscribe};
use super::json::is_zero;
use super::reply::{ClientInfo, Publication, SubscribeResult};
use crate::keys::UserId;

/// A message about a channel or, without a channel, about the connection.
#[derive(Clone, PartialEq, Message, Serialize)]
pub(crate) struct Push {
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    channel: String,
    #[prost(message, optional, tag = "4")]
    #[serde(rename = "pub", skip_serializing_if = "Option::is_none")]
    publication: Option<Publication>,
    #[prost(message, optional, tag = "5")]
    #[serde(skip_serializing_if = "Option::is_none")]
    join: Option<Presence>,
    #[prost(message, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    leave: Option<Presence>,
    #[prost(message, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    unsubscribe: Option<UnsubscribePush>,
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "Option::is_none")]
    subscribe: Option<SubscribePush>,
    #[prost(message, optional, tag = "11")]
    #[serde(skip_serializing_if = "Option::is_none")]
    disconnect: Option<DisconnectPush>,
    #[prost(message, optional, tag = "12")]
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh: Option<Refresh>,
}

/// A client that has subscribed or unsubscribed.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct Presence {
    #[prost(message, optional, tag = "1")]
    pub(crate) info: Option<ClientInfo>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
struct UnsubscribePush {
    #[prost(uint32, tag = "2")]
    code: u32,
    #[prost(string, tag = "3")]
    reason: String,
}

/// The server has subscribed the client.
#[derive(Clone, PartialEq, Message, Serialize)]
struct SubscribePush {
    #[prost(bool, tag = "1")]
    recoverable: bool,
    #[prost(string, tag = "4")]
    epoch: String,
    #[prost(uint64, tag = "5")]
    offset: u64,
    #[prost(bool, tag = "6")]
    positioned: bool,
    #[prost(bytes = "vec", tag = "7")]
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "super::json::embedded::serialize")]
    data: Vec<u8>,
}

/// Why the connection ends, for transports without close frames.
#[derive(Clone, PartialEq, Message, Serialize)]
struct DisconnectPush {
    #[prost(uint32, tag = "1")]
    code: u32,
    #[prost(string, tag = "2")]
    reason: String,
}

/// When the connection expires now.
#[derive(Clone, PartialEq, Message, Serialize)]
pub(crate) struct Refresh {
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) expires: bool,
    #[prost(uint32, tag = "2")]
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) ttl: u32,
}

impl Push {
    fn to(channel: &impl ToString) -> Self {
        Self { channel: channel.to_string(), ..Self::default() }
    }

    pub(crate) fn publication(channel: &impl ToString, publication: Publication) -> Self {
        Self { publication: Some(publication), ..Self::to(channel) }
    }

    /// A publication that is not stored and has no offset.
    pub(crate) fn transient(channel: &impl ToString, data: &str) -> Self {
        let data = data.as_bytes().to_vec();
        Self::publication(channel, Publication { data, ..Publication::default() })
    }

    pub(crate) fn join(channel: &impl ToString, presence: Presence) -> Self {
        Self { join: Some(presence), ..Self::to(channel) }
    }

    pub(crate) fn leave(channel: &impl ToString, presence: Presence) -> Self {
        Self { leave: Some(presence), ..Self::to(channel) }
    }

    pub(crate) fn unsubscribe(channel: &impl ToString, reason: Unsubscribe) -> Self {
        let Unsubscribe { code, reason } = reason;
        Self { unsubscribe: Some(UnsubscribePush { code, reason: reason.to_owned() }), ..Self::to(channel) }
    }

    pub(crate) fn subscribe(channel: &impl ToString, result: SubscribeResult) -> Self {
        let SubscribeResult { recoverable, positioned, epoch, offset, data, .. } = result;
        let subscribe = SubscribePush { recoverable, epoch, offset, positioned, data };
        Self { subscribe: Some(subscribe), ..Self::to(channel) }
    }

    pub(crate) fn disconnect(Disconnect { code, reason }: Disconnect) -> Self {
        let disconnect = DisconnectPush { code: code.into(), reason: reason.into_owned() };
        Self { disconnect: Some(disconnect), ..Self::default() }
    }

    pub(crate) fn refresh(refresh: Refresh) -> Self {
        Self { refresh: Some(refresh), ..Self::default() }
    }
}

impl Presence {
    /// A user who has gone online or offline, with any connection.
    pub(crate) fn of(user: &UserId) -> Self {
        Self { info: Some(ClientInfo { user: user.to_string(), ..ClientInfo::default() }) }
    }
}
