//! Conversations: creation and titles.

pub(crate) mod attachment;
pub(crate) mod block;
pub(crate) mod erasure;
pub(crate) mod event;
pub(crate) mod expiry;
pub(crate) mod group;
pub(crate) mod listed;
pub(crate) mod member;
pub(crate) mod message;
pub(crate) mod outbox;
pub(crate) mod reaction;
pub(crate) mod search;

use hob_database::{Database, Isolation, Transaction, from_row};
use serde::Serialize;
use utoipa::ToSchema;

use self::event::{Event, EventClass, EventPayload, Timestamp};
use crate::database::{conversations, events, members};
use crate::error::{Answer, Refusal, Rollback, into_answer};
use crate::keys::{ConversationId, UserId};

/// The most members of a conversation.
pub(crate) const MAX_MEMBERS: usize = 10_000;
/// The longest title, in bytes.
pub(crate) const MAX_TITLE_BYTES: usize = 200;

/// A conversation.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Conversation {
    #[schema(value_type = String)]
    pub id: ConversationId,
    pub title: String,
    #[schema(value_type = String)]
    pub created_by: UserId,
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    /// The sequence of the last event: the offset of the channel.
    pub sequence: u64,
    /// How many messages were sent.
    pub newest: u64,
    #[schema(value_type = String)]
    pub changed_at: Timestamp,
    /// Messages are deleted after this time, in seconds. Missing: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_ttl: Option<u64>,
}

from_row!(Conversation { id, title, created_by, created_at, sequence, newest, changed_at, message_ttl });

/// A conversation in the list of one of its members.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversationSummary {
    pub id: ConversationId,
    pub title: String,
    pub sequence: u64,
    pub changed_at: Timestamp,
}

from_row!(ConversationSummary { id, title, sequence, changed_at });

/// A conversation to open.
#[derive(Clone, Debug)]
pub struct NewConversation {
    pub id: ConversationId,
    pub title: String,
    pub created_by: UserId,
    /// The members besides `created_by`.
    pub members: Vec<UserId>,
}

/// Opens a conversation. Each member joins with an event.
pub(crate) async fn open(database: &Database, new: &NewConversation) -> Answer<Conversation> {
    if let Err(refusal) = check_title(&new.title) {
        return Ok(Err(refusal));
    }
    if new.members.len() >= MAX_MEMBERS {
        return Ok(Err(Refusal::LimitExceeded { what: "members", max: MAX_MEMBERS as u64 }));
    }
    into_answer(database.write(|tx| async move { open_in(&tx, new).await }).await)
}

async fn open_in(tx: &Transaction, new: &NewConversation) -> Result<Conversation, Rollback> {
    if !conversations::insert(tx, new).await? {
        return Err(Refusal::AlreadyExists.into());
    }
    let mut members = vec![&new.created_by];
    for user in &new.members {
        if !members.contains(&user) {
            members.push(user);
        }
    }
    let payloads = members.iter().map(|user| EventPayload::Joined { user_id: (*user).clone() }.to_json());
    let payloads = payloads.collect::<Result<Vec<_>, _>>()?;
    events::insert_joins(tx, &new.id, &new.created_by, payloads).await?;
    let sequence = members.len() as u64;
    members::insert_first(tx, &new.id, &members, sequence).await?;
    conversations::set_sequence(tx, &new.id, sequence).await?;
    outbox::emit_recount_all(tx, &new.id)?;
    Ok(conversations::get(tx, &new.id).await?.ok_or(Refusal::ConversationNotFound)?)
}

/// Changes the title of a conversation.
pub(crate) async fn rename(
    database: &Database,
    id: &ConversationId,
    by: &UserId,
    new_title: &str,
) -> Answer<Event> {
    if let Err(refusal) = check_title(new_title) {
        return Ok(Err(refusal));
    }
    let work = |tx: Transaction| async move {
        let next = event::next(&tx, id, EventClass::Other).await?;
        member::require_member(&tx, id, by).await?;
        conversations::set_title(&tx, id, new_title).await?;
        let payload = EventPayload::Renamed { title: new_title.to_owned() };
        event::write(&tx, id, next.sequence, by, &payload).await
    };
    into_answer(database.write_with(Isolation::ReadCommitted, work).await)
}

fn check_title(title: &str) -> Result<(), Refusal> {
    let bad = |reason: &str| Err(Refusal::InvalidField { field: "title", reason: reason.to_owned() });
    if title.trim().is_empty() {
        bad("must not be empty")
    } else if title.len() > MAX_TITLE_BYTES || title.chars().any(char::is_control) {
        bad("at most 200 bytes, without control characters")
    } else {
        Ok(())
    }
}
