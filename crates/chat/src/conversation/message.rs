//! Messages: deduplicated by client id, edited and deleted only by their sender.

use hob_database::{Database, Isolation, Read, Transaction, from_row};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::conversation::block;
use crate::conversation::event::{self, Event, EventClass, EventPayload, NextSequence, Timestamp};
use crate::conversation::member;
use crate::conversation::outbox;
use crate::database::{members, messages};
use crate::error::{Answer, Refusal, Rollback, into_answer};
use crate::keys::{ConversationId, UserId};
use crate::webhook::Notice;

/// The longest content. JSON takes up to six bytes for one, so with its metadata a message stays below the 32 KiB limit of
/// the cache.
pub(crate) const MAX_CONTENT_BYTES: usize = 4 * 1024;
const MAX_CLIENT_ID_BYTES: usize = 128;

/// A message, as clients get it and Redis holds it (C7).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    pub id: String,
    pub content: String,
    pub sender_id: UserId,
    pub timestamp: Timestamp,
    pub conversation_id: ConversationId,
    /// The number of the message in the conversation: 1, 2, 3, …
    pub number: u64,
    /// The sequence of its event: its offset in the channel.
    pub sequence: u64,
    /// The id that the sender chose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
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

impl Message {
    /// A message that gets these numbers.
    pub(crate) fn new(tx: &Transaction, new: &NewMessage, next: NextSequence) -> Self {
        Self {
            id: format!("{:032x}", rand::random::<u128>()),
            content: new.content.clone(),
            sender_id: new.sender.clone(),
            timestamp: Timestamp(tx.now()),
            conversation_id: new.conversation.clone(),
            number: next.newest,
            sequence: next.sequence,
            client_id: new.client_id.clone(),
            edited_at: None,
            deleted: false,
        }
    }
}

/// A message to send.
#[derive(Clone, Debug)]
pub struct NewMessage {
    pub conversation: ConversationId,
    pub sender: UserId,
    pub content: String,
    /// A repeated send with the same id returns the first message.
    pub client_id: Option<String>,
}

/// A message that is in the database.
#[derive(Clone, Debug, PartialEq)]
pub enum SentMessage {
    New(Message),
    /// An earlier call with the same client id has sent it.
    Repeated(Message),
}

impl SentMessage {
    pub fn into_message(self) -> Message {
        match self {
            Self::New(message) | Self::Repeated(message) => message,
        }
    }
}

/// Which messages a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageRange {
    /// The newest ones.
    Newest,
    /// The newest ones before a sequence.
    Before(u64),
    /// The oldest ones after a sequence.
    After(u64),
}

/// Sends a message that [`check`] accepted. It is in the database when this returns.
pub(crate) async fn send(database: &Database, new: &NewMessage) -> Answer<(Message, Event)> {
    let work = |tx: Transaction| async move { send_in(&tx, new).await };
    into_answer(database.write_with(Isolation::ReadCommitted, work).await)
}

async fn send_in(tx: &Transaction, new: &NewMessage) -> Result<(Message, Event), Rollback> {
    let next = event::next(tx, &new.conversation, EventClass::Message).await?;
    let has_blocks = members::has_blocks(tx, &new.conversation, &new.sender).await?;
    if has_blocks.ok_or(Refusal::NotMember)?
        && block::all_others_hidden(tx, &new.conversation, &new.sender).await?
    {
        return Err(Refusal::Blocked.into());
    }
    let message = Message::new(tx, new, next);
    if !messages::insert_all(tx, &[&message]).await? {
        // A concurrent send with the same client id won. This transaction is rolled back.
        return Err(Rollback::Refused(Refusal::AlreadyExists));
    }
    outbox::emit_message_created(tx, &message)?;
    let payload = EventPayload::Message { message: message.clone() };
    let event = event::write(tx, &new.conversation, next.sequence, &new.sender, &payload).await?;
    Ok((message, event))
}

/// The message that the sender has already sent with this client id.
pub(crate) async fn find_sent(database: &impl Read, new: &NewMessage) -> Result<Option<Message>, Error> {
    let Some(client_id) = &new.client_id else { return Ok(None) };
    messages::by_client_id(database, &new.conversation, &new.sender, client_id).await
}

/// Replaces the content of a message.
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
        outbox::emit_message_changed(&tx, &message, Notice::Edited)?;
        let payload = EventPayload::Edited { message: message.clone() };
        let event = event::write(&tx, conversation, next.sequence, by, &payload).await?;
        Ok((message, event))
    };
    into_answer(database.write_with(Isolation::ReadCommitted, work).await)
}

/// Deletes a message and erases its content from the database.
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
        outbox::emit_message_changed(&tx, &message, Notice::Deleted)?;
        let payload = EventPayload::Deleted { message: message.clone() };
        let event = event::write(&tx, conversation, next.sequence, by, &payload).await?;
        Ok((message, event))
    };
    into_answer(database.write_with(Isolation::ReadCommitted, work).await)
}

/// The message, if it exists and the user is its sender.
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

/// Checks the content and the client id of a message.
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
            bad("client_id", "1 to 128 bytes")
        }
        _ => Ok(()),
    }
}
