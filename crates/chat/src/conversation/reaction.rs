//! Reactions: how users react to messages. A reaction is a short text, usually an emoji.

use hob_database::{Database, Isolation, Transaction, from_row};
use serde::Serialize;
use utoipa::ToSchema;

use crate::config::AbsenceMessages;
use crate::conversation::event::{self, Event, EventClass, EventPayload, Timestamp};
use crate::conversation::member;
use crate::conversation::message::Message;
use crate::database::{messages, reactions};
use crate::error::{Answer, Refusal, Rollback, into_answer};
use crate::keys::{ConversationId, UserId};

/// The longest reaction, in bytes. Emoji that consist of several characters are up to 35 bytes long.
const MAX_EMOJI_BYTES: usize = 64;
/// The most reactions of one user to a message.
const MAX_OF_USER: u64 = 10;
/// The most different reactions to a message.
const MAX_KINDS: u64 = 20;

/// Whether to add or remove a reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReactionAction {
    Add,
    Remove,
}

/// A reaction to a message, and how many users have it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = ReactionCount)]
pub struct ReactionCount {
    pub emoji: String,
    pub count: u64,
    /// Whether the reader is one of these users.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
}

/// A user's reaction to a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Reaction {
    pub emoji: String,
    pub user_id: UserId,
    pub reacted_at: Timestamp,
}

from_row!(Reaction { emoji, user_id, reacted_at });

/// Adds or removes a reaction. `None` if nothing changed.
pub(crate) async fn set(
    database: &Database,
    (conversation, id): (&ConversationId, &str),
    by: &UserId,
    emoji: &str,
    action: ReactionAction,
    absences: AbsenceMessages,
) -> Answer<Option<Event>> {
    if let Err(refusal) = check(emoji) {
        return Ok(Err(refusal));
    }
    let work = |tx: Transaction| async move {
        let next = event::next(&tx, conversation, EventClass::Other).await?;
        let membership = member::require_member(&tx, conversation, by).await?;
        let absent = membership.hides_absence(absences).then_some(by);
        let message = messages::readable(&tx, conversation, id, Some(by), absent).await?;
        let message = message.ok_or(Refusal::MessageNotFound)?;
        let changed = match action {
            ReactionAction::Add => add(&tx, &message, by, emoji).await?,
            ReactionAction::Remove => reactions::delete(&tx, &message, by, emoji).await?,
        };
        if !changed {
            // Without a change, the number of the event is given back.
            return Err(Rollback::Refused(Refusal::AlreadyExists));
        }
        let (message_id, user_id, emoji) = (message.id, by.clone(), emoji.to_owned());
        let about = message.sequence;
        let payload = match action {
            ReactionAction::Add => EventPayload::Reacted { message_id, sequence: about, user_id, emoji },
            ReactionAction::Remove => EventPayload::Unreacted { message_id, sequence: about, user_id, emoji },
        };
        event::write(&tx, conversation, next.sequence, by, &payload).await
    };
    match into_answer(database.write_with(Isolation::ReadCommitted, work).await)? {
        Ok(event) => Ok(Ok(Some(event))),
        Err(Refusal::AlreadyExists) => Ok(Ok(None)),
        Err(refusal) => Ok(Err(refusal)),
    }
}

/// Adds a reaction within the limits. `false` if the user already has it.
async fn add(tx: &Transaction, message: &Message, by: &UserId, emoji: &str) -> Result<bool, Rollback> {
    if !reactions::insert(tx, message, by, emoji).await? {
        return Ok(false);
    }
    if reactions::count_of_user(tx, message, by).await? > MAX_OF_USER {
        return Err(
            Refusal::LimitExceeded { what: "reactions of a user to a message", max: MAX_OF_USER }.into()
        );
    }
    // Counting all kinds reads all reactions, and only the first of a kind adds one.
    if reactions::is_first(tx, message, by, emoji).await?
        && reactions::count_kinds(tx, message).await? > MAX_KINDS
    {
        return Err(
            Refusal::LimitExceeded { what: "different reactions to a message", max: MAX_KINDS }.into()
        );
    }
    Ok(true)
}

fn check(emoji: &str) -> Result<(), Refusal> {
    let is_bad = |character: char| character.is_whitespace() || character.is_control();
    if emoji.is_empty() || emoji.len() > MAX_EMOJI_BYTES || emoji.chars().any(is_bad) {
        let reason = "1 to 64 bytes, without spaces and control characters".to_owned();
        return Err(Refusal::InvalidField { field: "emoji", reason });
    }
    Ok(())
}
