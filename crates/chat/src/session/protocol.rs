//! The Centrifugo client protocol: commands, replies, pushes and error codes, in JSON and in Protobuf.
//!
//! Each message is one type with both encodings, so that they cannot differ. The names are those of the JSON encoding, the tags
//! those of Centrifugal's public definition of the protocol. Data of the application is JSON in both: part of the document in
//! JSON, bytes in Protobuf.

mod code;
mod command;
mod format;
mod json;
mod push;
mod reply;

pub(crate) use code::{Disconnect, ReplyError, Unsubscribe};
pub(crate) use command::{
    Command, ConnectRequest, HistoryRequest, PublishRequest, RpcRequest, StreamPosition, SubRefreshRequest,
    SubscribeRequest,
};
pub(crate) use format::Format;
#[doc(hidden)]
pub use format::{FrameFormat, parse_frame};
pub(crate) use json::{client_json, one_line, parse, raw};
pub(crate) use push::{Presence, Push, Refresh};
pub(crate) use reply::{
    ClientInfo, ConnectResult, Empty, HistoryResult, PresenceResult, PresenceStatsResult, Publication, Reply,
    ReplyResult, RpcResult, SubRefreshResult, SubscribeResult, seconds_until,
};
