//! What is said in passing and kept nowhere: who is typing, how far somebody has read, what changed for a user.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::hub::Channel;
use crate::keys::{ConversationId, UserId};
use crate::store::typing;
use crate::store::unread::UnreadCount;

/// Something said in passing, as subscribers are told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(crate) enum TransientEvent {
    /// On a conversation: somebody types, or has stopped.
    Typing { user_id: UserId, typing: bool },
    /// On a conversation: a member has read, or was delivered, everything up to an event.
    Receipt { user_id: UserId, read_sequence: u64, delivered_sequence: u64 },
}

/// Something that concerns one user, on their feed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(crate) enum FeedUpdate<'a> {
    Unread {
        conversation_id: &'a ConversationId,
        unread: u64,
        total: u64,
        stamp: u64,
    },
    /// The user is in a conversation, or not any more.
    Membership {
        conversation_id: &'a ConversationId,
        member: bool,
    },
    /// A contact came or went.
    Presence {
        user_id: &'a UserId,
        online: bool,
        timestamp: &'a str,
        version: u64,
    },
}

/// What a feed begins with: everything that its news then change.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FeedSnapshot {
    pub(crate) unread: Vec<UnreadCount>,
    pub(crate) total: u64,
    /// The contacts who are online.
    pub(crate) online: Vec<UserId>,
}

impl TransientEvent {
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl FeedUpdate<'_> {
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Takes note of what another node said about typing, so that the end of it can be told here.
pub(crate) fn track_typing(channel: &Channel, data: &str) {
    if !data.starts_with(r#"{"type":"typing""#) {
        return;
    }
    if let Ok(TransientEvent::Typing { user_id, typing }) = serde_json::from_str(data) {
        channel.set_typing(&user_id, typing.then(|| Instant::now() + typing::TYPING_TTL));
    }
}
