//! The events of a conversation: numbered without gaps and kept forever, so that any client can catch up.

use hob_database::{Transaction, UnixMs, column, from_row};
use serde::{Deserialize, Serialize};

use crate::Refusal;
use crate::conversation::message::Message;
use crate::database::events::NewEvent;
use crate::database::{conversations, events};
use crate::error::Rollback;
use crate::keys::{ConversationId, UserId};

/// What happened, as it is stored and published.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventPayload {
    /// A message was sent.
    Message {
        message: Message,
    },
    /// The content of a message was replaced.
    Edited {
        message: Message,
    },
    /// A message was deleted. Its content is empty.
    Deleted {
        message: Message,
    },
    #[serde(rename_all = "camelCase")]
    Joined {
        user_id: UserId,
    },
    #[serde(rename_all = "camelCase")]
    Left {
        user_id: UserId,
    },
    Renamed {
        title: String,
    },
    /// Messages are deleted after this time, in seconds. `None`: never.
    #[serde(rename_all = "camelCase")]
    Expiry {
        message_ttl: Option<u64>,
    },
    /// A user has reacted to a message. The sequence is that of the message.
    #[serde(rename_all = "camelCase")]
    Reacted {
        message_id: String,
        sequence: u64,
        user_id: UserId,
        emoji: String,
    },
    /// A user has removed a reaction.
    #[serde(rename_all = "camelCase")]
    Unreacted {
        message_id: String,
        sequence: u64,
        user_id: UserId,
        emoji: String,
    },
}

/// An event with its sequence number.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// 1, 2, 3, … without gaps: the offset in the channel.
    pub sequence: u64,
    /// The user who caused it. A block between this user and a subscriber hides the event from the subscriber.
    pub actor: UserId,
    /// An [`EventPayload`] as JSON.
    pub payload: String,
}

from_row!(Event { sequence, actor, payload });

/// The numbers that were assigned to the next event of a conversation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextSequence {
    pub(crate) sequence: u64,
    /// The number of the newest message, including one that is being sent.
    pub(crate) newest: u64,
}

/// Which counters of its conversation an event advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventClass {
    /// The sequence and the number of messages.
    Message,
    /// The sequence only.
    Other,
}

/// Takes the next sequence number. Locks the row of the conversation until the transaction ends, so that changes of one
/// conversation are serialized and each sees all earlier ones.
pub(crate) async fn next(
    tx: &Transaction,
    conversation: &ConversationId,
    class: EventClass,
) -> Result<NextSequence, Rollback> {
    let messages = match class {
        EventClass::Message => 1,
        EventClass::Other => 0,
    };
    let taken = conversations::advance(tx, conversation, 1, messages).await?;
    let (sequence, newest) = taken.ok_or(Refusal::ConversationNotFound)?;
    Ok(NextSequence { sequence, newest })
}

/// Writes an event under a number from [`next`].
pub(crate) async fn write(
    tx: &Transaction,
    conversation: &ConversationId,
    sequence: u64,
    actor: &UserId,
    payload: &EventPayload,
) -> Result<Event, Rollback> {
    let json = payload.to_json()?;
    let (kind, about) = (payload.kind(), payload.about());
    let event = NewEvent { sequence, kind, actor, about, payload: &json };
    events::insert(tx, conversation, &event).await?;
    Ok(Event { sequence, actor: actor.clone(), payload: json })
}

/// Erases the content of a deleted message from earlier events.
pub(crate) async fn erase_content(tx: &Transaction, message: &Message) -> Result<(), Rollback> {
    let erased = message.clone();
    replace(tx, message, &EventPayload::Message { message: erased.clone() }).await?;
    replace(tx, message, &EventPayload::Edited { message: erased }).await
}

/// Replaces the payload of the events of the same kind that are about a message.
pub(crate) async fn replace(
    tx: &Transaction,
    message: &Message,
    payload: &EventPayload,
) -> Result<(), Rollback> {
    let (json, id) = (payload.to_json()?, &message.conversation_id);
    Ok(events::set_payload(tx, id, message.sequence, payload.kind(), &json).await?)
}

impl EventPayload {
    pub(crate) fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// Replaces a user, in events that are not about the text of a message. `false` if the event is about another user.
    pub(crate) fn rename_user(&mut self, from: &UserId, to: &UserId) -> bool {
        match self {
            Self::Joined { user_id }
            | Self::Left { user_id }
            | Self::Reacted { user_id, .. }
            | Self::Unreacted { user_id, .. }
                if user_id == from =>
            {
                *user_id = to.clone();
                true
            }
            _ => false,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Message { .. } => "message",
            Self::Edited { .. } => "edited",
            Self::Deleted { .. } => "deleted",
            Self::Joined { .. } => "joined",
            Self::Left { .. } => "left",
            Self::Renamed { .. } => "renamed",
            Self::Expiry { .. } => "expiry",
            Self::Reacted { .. } => "reacted",
            Self::Unreacted { .. } => "unreacted",
        }
    }

    /// The sequence of the message that the event is about.
    fn about(&self) -> Option<u64> {
        match self {
            Self::Message { message } | Self::Edited { message } | Self::Deleted { message } => {
                Some(message.sequence)
            }
            Self::Reacted { sequence, .. } | Self::Unreacted { sequence, .. } => Some(*sequence),
            Self::Joined { .. } | Self::Left { .. } | Self::Renamed { .. } | Self::Expiry { .. } => None,
        }
    }
}

/// Formats a time as ISO 8601 in UTC with milliseconds. Such texts sort by time.
pub(crate) fn iso(time: UnixMs) -> String {
    let time = jiff::Timestamp::from_millisecond(time.0).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// A time that is stored in milliseconds and written as [`iso`] text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub UnixMs);

column!(Timestamp(UnixMs));

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&iso(self.0))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let time: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(UnixMs(time.as_millisecond())))
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&iso(self.0))
    }
}

impl Event {
    /// The payload, if the event changes the members of the conversation.
    pub(crate) fn membership_change(&self) -> Option<EventPayload> {
        let changes_members =
            self.payload.starts_with(r#"{"type":"joined""#) || self.payload.starts_with(r#"{"type":"left""#);
        if changes_members { serde_json::from_str(&self.payload).ok() } else { None }
    }
}
