//! Publications that are not stored: typing, receipts, and updates of a user's feed.

use serde::{Deserialize, Serialize};

use crate::keys::{ConversationId, UserId};
use crate::store::unread::UnreadCount;

/// An event on a conversation's channel that is not stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(crate) enum TransientEvent {
    /// A user is typing or has stopped.
    Typing { user_id: UserId, typing: bool },
    /// A member has received or read everything up to an event.
    Receipt { user_id: UserId, read_sequence: u64, delivered_sequence: u64 },
}

/// An update on a user's feed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(crate) enum FeedUpdate<'a> {
    Unread {
        conversation_id: &'a ConversationId,
        unread: u64,
        mentions: u64,
        total: u64,
        stamp: u64,
    },
    /// The user joined or left a conversation.
    Membership {
        conversation_id: &'a ConversationId,
        member: bool,
    },
    /// A contact went online or offline.
    Presence {
        user_id: &'a UserId,
        online: bool,
        timestamp: &'a str,
        version: u64,
    },
}

/// The state that a feed starts with. Updates change it.
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

/// The user and whether they are typing, if this is a typing event.
pub(crate) fn typing_of(data: &str) -> Option<(UserId, bool)> {
    if !data.starts_with(r#"{"type":"typing""#) {
        return None;
    }
    match serde_json::from_str(data) {
        Ok(TransientEvent::Typing { user_id, typing }) => Some((user_id, typing)),
        _ => None,
    }
}
