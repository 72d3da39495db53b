//! What happens in a conversation: a sequence of events without a gap, kept for ever, from which every client
//! can catch up.

use hob_database::{Transaction, UnixMs, column, from_row};
use serde::{Deserialize, Serialize};

use crate::Refusal;
use crate::conversation::message::Message;
use crate::database::events::NewEvent;
use crate::database::{conversations, events};
use crate::error::Halt;
use crate::keys::{ConversationId, UserId};

/// Something that happened, as subscribers are told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Happening {
    /// A message was sent.
    Message {
        message: Message,
    },
    /// A message has new content.
    Edited {
        message: Message,
    },
    /// A message is gone; its content with it.
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
}

/// An event with its place in the conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// 1, 2, 3, … without a gap: the channel's offset.
    pub sequence: u64,
    /// Who did it: what somebody who blocked them, or was blocked by them, does not see.
    pub actor: UserId,
    /// A [`Happening`] as JSON.
    pub payload: String,
}

from_row!(Event { sequence, actor, payload });

/// The number that the next event of a conversation got.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) sequence: u64,
    /// The number of the newest message, with the one that is being sent.
    pub(crate) newest: u64,
}

/// What an event is about to do to the numbers of its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Counts a new message too.
    Message,
    Other,
}

/// Takes the next number. The conversation's row is held until the transaction ends, so that changes of one
/// conversation happen one after the other, and each sees all before it.
pub(crate) async fn next(tx: &Transaction, conversation: &ConversationId, step: Step) -> Result<Turn, Halt> {
    let messages = match step {
        Step::Message => 1,
        Step::Other => 0,
    };
    let taken = conversations::advance(tx, conversation, messages).await?;
    let (sequence, newest) = taken.ok_or(Refusal::NoConversation)?;
    Ok(Turn { sequence, newest })
}

/// Writes an event under a number that was taken.
pub(crate) async fn write(
    tx: &Transaction,
    conversation: &ConversationId,
    sequence: u64,
    actor: &UserId,
    happening: &Happening,
) -> Result<Event, Halt> {
    let payload = happening.to_json()?;
    let (kind, about) = (happening.kind(), happening.about());
    let event = NewEvent { sequence, kind, actor, about, payload: &payload };
    events::insert(tx, conversation, &event).await?;
    Ok(Event { sequence, actor: actor.clone(), payload })
}

/// Takes a deleted message's content out of the events that told of it.
pub(crate) async fn scrub(tx: &Transaction, message: &Message) -> Result<(), Halt> {
    let gone = message.clone();
    for happening in [Happening::Message { message: gone.clone() }, Happening::Edited { message: gone }] {
        let (payload, id) = (happening.to_json()?, &message.conversation_id);
        events::set_payload(tx, id, message.sequence, happening.kind(), &payload).await?;
    }
    Ok(())
}

impl Happening {
    pub(crate) fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Message { .. } => "message",
            Self::Edited { .. } => "edited",
            Self::Deleted { .. } => "deleted",
            Self::Joined { .. } => "joined",
            Self::Left { .. } => "left",
            Self::Renamed { .. } => "renamed",
        }
    }

    /// The sequence of the message that it is about.
    fn about(&self) -> Option<u64> {
        match self {
            Self::Message { message } | Self::Edited { message } | Self::Deleted { message } => {
                Some(message.sequence)
            }
            Self::Joined { .. } | Self::Left { .. } | Self::Renamed { .. } => None,
        }
    }
}

/// A time as the API writes it: ISO 8601 in UTC, to the millisecond, so that later ones sort later as text.
pub(crate) fn iso(time: UnixMs) -> String {
    let time = jiff::Timestamp::from_millisecond(time.0).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// A time that is kept as milliseconds and shown as [`iso`] text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At(pub UnixMs);

column!(At(UnixMs));

impl Serialize for At {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&iso(self.0))
    }
}

impl<'de> Deserialize<'de> for At {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let time: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(UnixMs(time.as_millisecond())))
    }
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&iso(self.0))
    }
}

impl Event {
    /// What happened, if it is about who is in the conversation.
    pub(crate) fn membership(&self) -> Option<Happening> {
        let about =
            self.payload.starts_with(r#"{"type":"joined""#) || self.payload.starts_with(r#"{"type":"left""#);
        if about { serde_json::from_str(&self.payload).ok() } else { None }
    }
}
