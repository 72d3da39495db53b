//! Messages: sent once however often a client repeats itself, edited and deleted by their senders only.

use hob_database::{Database, Isolation, Read, Transaction, from_row};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Error;
use crate::conversation::block;
use crate::conversation::event::{self, Event, EventClass, EventPayload, Timestamp};
use crate::conversation::member;
use crate::conversation::outbox;
use crate::database::messages;
use crate::error::{Answer, Refusal, Rollback, into_answer};
use crate::keys::{ConversationId, UserId};

/// The longest content, in bytes: with everything around it an item of the cache stays below 16 KiB.
pub(crate) const MAX_CONTENT_BYTES: usize = 4 * 1024;
const MAX_CLIENT_ID_BYTES: usize = 128;

/// A message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    pub id: String,
    pub content: String,
    #[schema(value_type = String)]
    pub sender_id: UserId,
    #[schema(value_type = String)]
    pub timestamp: Timestamp,
    #[schema(value_type = String)]
    pub conversation_id: ConversationId,
    /// Which message of the conversation this is: 1, 2, 3, …
    pub number: u64,
    /// The event that it came with: its offset in the channel.
    pub sequence: u64,
    /// The sender's own id for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub edited_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

from_row!(Message {
    id,
    content,
    sender_id,
    timestamp,
    conversation_id,
    number,
    sequence,
    client_id,
    edited_at,
    deleted
});

/// What a user wants to send.
#[derive(Clone, Debug)]
pub struct NewMessage {
    pub conversation: ConversationId,
    pub sender: UserId,
    pub content: String,
    /// Repeating a message under the same id sends it once, for ever.
    pub client_id: Option<String>,
}

/// What a page of messages begins or ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageRange {
    /// The newest ones.
    Newest,
    /// The newest ones before a sequence.
    Before(u64),
    /// The oldest ones after a sequence.
    After(u64),
}

/// Sends a message that was [checked](check): it is in the database when this answers.
pub(crate) async fn send(database: &Database, new: &NewMessage) -> Answer<(Message, Event)> {
    let id = &format!("{:032x}", rand::random::<u128>());
    let work = |tx: Transaction| async move { send_in(&tx, new, id).await };
    into_answer(database.write_with(Isolation::Committed, work).await)
}

async fn send_in(tx: &Transaction, new: &NewMessage, id: &str) -> Result<(Message, Event), Rollback> {
    let next = event::next(tx, &new.conversation, EventClass::Message).await?;
    member::require_member(tx, &new.conversation, &new.sender).await?;
    if block::all_others_hidden(tx, &new.conversation, &new.sender).await? {
        return Err(Refusal::Blocked.into());
    }
    let message = Message {
        id: id.to_owned(),
        content: new.content.clone(),
        sender_id: new.sender.clone(),
        timestamp: Timestamp(tx.now()),
        conversation_id: new.conversation.clone(),
        number: next.newest,
        sequence: next.sequence,
        client_id: new.client_id.clone(),
        edited_at: None,
        deleted: false,
    };
    if !messages::insert(tx, &message).await? {
        // The same message, from another try that was under way. What it did is undone here.
        return Err(Rollback::Refused(Refusal::AlreadyExists));
    }
    outbox::emit_message_created(tx, &message)?;
    let payload = EventPayload::Message { message: message.clone() };
    let event = event::write(tx, &new.conversation, next.sequence, &new.sender, &payload).await?;
    Ok((message, event))
}

/// A message that the sender has sent under this id already.
pub(crate) async fn find_sent(database: &impl Read, new: &NewMessage) -> Result<Option<Message>, Error> {
    let Some(client_id) = &new.client_id else { return Ok(None) };
    messages::by_client_id(database, &new.conversation, &new.sender, client_id).await
}

/// Gives a message new content.
pub(crate) async fn edit(
    database: &Database,
    conversation: &ConversationId,
    id: &str,
    by: &UserId,
    content: &str,
) -> Answer<(Message, Event)> {
    if let Err(refusal) = check(content, None) {
        return Ok(Err(refusal));
    }
    let work = |tx: Transaction| async move {
        let next = event::next(&tx, conversation, EventClass::Other).await?;
        let mut message = own_message(&tx, conversation, id, by).await?;
        message.content = content.to_owned();
        message.edited_at = Some(Timestamp(tx.now()));
        messages::set_content(&tx, id, content).await?;
        let payload = EventPayload::Edited { message: message.clone() };
        let event = event::write(&tx, conversation, next.sequence, by, &payload).await?;
        Ok((message, event))
    };
    into_answer(database.write_with(Isolation::Committed, work).await)
}

/// Deletes a message: its content is gone from the database, too.
pub(crate) async fn delete(
    database: &Database,
    conversation: &ConversationId,
    id: &str,
    by: &UserId,
) -> Answer<(Message, Event)> {
    let work = |tx: Transaction| async move {
        let next = event::next(&tx, conversation, EventClass::Other).await?;
        let mut message = own_message(&tx, conversation, id, by).await?;
        message.content = String::new();
        message.deleted = true;
        messages::erase(&tx, id).await?;
        event::erase_content(&tx, &message).await?;
        outbox::emit_recount_all(&tx, conversation)?;
        let payload = EventPayload::Deleted { message: message.clone() };
        let event = event::write(&tx, conversation, next.sequence, by, &payload).await?;
        Ok((message, event))
    };
    into_answer(database.write_with(Isolation::Committed, work).await)
}

/// The message, if it is there and the user's own.
async fn own_message(
    tx: &Transaction,
    conversation: &ConversationId,
    id: &str,
    by: &UserId,
) -> Result<Message, Rollback> {
    member::require_member(tx, conversation, by).await?;
    let message = messages::get(tx, id).await?;
    let found = message.filter(|message| !message.deleted && message.conversation_id == *conversation);
    let message = found.ok_or(Refusal::MessageNotFound)?;
    if message.sender_id != *by {
        return Err(Refusal::NotSender.into());
    }
    Ok(message)
}

/// Whether this can be a message.
pub(crate) fn check(content: &str, client_id: Option<&str>) -> Result<(), Refusal> {
    let bad = |field, reason: &str| Err(Refusal::InvalidField { field, reason: reason.to_owned() });
    if content.trim().is_empty() {
        return bad("content", "must not be empty");
    }
    if content.len() > MAX_CONTENT_BYTES || content.contains('\0') {
        return bad("content", "at most 4 KiB of text");
    }
    match client_id {
        Some(id) if id.is_empty() || id.len() > MAX_CLIENT_ID_BYTES || id.contains('\0') => {
            bad("clientId", "1 to 128 bytes")
        }
        _ => Ok(()),
    }
}
