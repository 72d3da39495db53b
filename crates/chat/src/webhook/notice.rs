//! Notices: what a webhook receives. They are stored without the content of messages, which is read when they are sent.

use serde::{Deserialize, Serialize};

use crate::conversation::message::Message;
use crate::conversation::outbox::MessageCreated;
use crate::keys::{ConversationId, UserId};

/// Which events a webhook receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoticeClass {
    /// New, edited and deleted messages.
    Message,
    /// New messages for members who are offline.
    Offline,
    /// Users who go online or offline.
    Presence,
}

/// A notice as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub(crate) enum Notice {
    #[serde(rename = "message.created")]
    Created(MessageRef),
    #[serde(rename = "message.edited")]
    Edited(MessageRef),
    #[serde(rename = "message.deleted")]
    Deleted(MessageRef),
    #[serde(rename = "message.offline")]
    Offline { message: MessageRef, user_ids: Vec<UserId> },
    #[serde(rename = "user.online")]
    UserOnline(PresenceReport),
    #[serde(rename = "user.offline")]
    UserOffline(PresenceReport),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MessageRef {
    pub(crate) conversation_id: ConversationId,
    pub(crate) message_id: String,
    /// The sequence of the message.
    pub(crate) sequence: u64,
}

/// A change of a user's presence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PresenceReport {
    pub(crate) user_id: UserId,
    pub(crate) timestamp: String,
    pub(crate) version: u64,
}

/// The body of a request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Body<'a> {
    /// The same in each attempt.
    pub(super) id: &'a str,
    pub(super) r#type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<Message>,
    /// The members at the time of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) participant_ids: Option<Vec<UserId>>,
    /// The members who are offline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user_ids: Option<&'a [UserId]>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) presence: Option<&'a PresenceReport>,
}

impl From<&Message> for MessageRef {
    fn from(message: &Message) -> Self {
        Self {
            conversation_id: message.conversation_id.clone(),
            message_id: message.id.clone(),
            sequence: message.sequence,
        }
    }
}

impl From<&MessageCreated> for MessageRef {
    fn from(created: &MessageCreated) -> Self {
        Self {
            conversation_id: created.conversation_id.clone(),
            message_id: created.message_id.clone(),
            sequence: created.sequence,
        }
    }
}

impl Notice {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Created(_) => "message.created",
            Self::Edited(_) => "message.edited",
            Self::Deleted(_) => "message.deleted",
            Self::Offline { .. } => "message.offline",
            Self::UserOnline(_) => "user.online",
            Self::UserOffline(_) => "user.offline",
        }
    }

    /// The message that it is about.
    pub(super) fn message(&self) -> Option<&MessageRef> {
        match self {
            Self::Created(message) | Self::Edited(message) | Self::Deleted(message) => Some(message),
            Self::Offline { message, .. } => Some(message),
            Self::UserOnline(_) | Self::UserOffline(_) => None,
        }
    }
}
