//! Messages: sent once however often a client repeats itself, edited and deleted by their senders only.

use hob_database::{Database, Isolation, Read, Transaction, from_row};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Error;
use crate::conversation::block;
use crate::conversation::event::{self, At, Event, Happening, Step};
use crate::conversation::member;
use crate::conversation::outbox;
use crate::database::messages;
use crate::error::{Answer, Halt, Refusal, answer};
use crate::keys::{ConversationId, UserId};

/// The longest content, in bytes: with everything around it an item of the cache stays below 16 KiB.
pub(crate) const LONGEST_CONTENT: usize = 4 * 1024;
const LONGEST_CLIENT_ID: usize = 128;

/// A message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    pub id: String,
    pub content: String,
    #[schema(value_type = String)]
    pub sender_id: UserId,
    #[schema(value_type = String)]
    pub timestamp: At,
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
    pub edited_at: Option<At>,
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
pub enum Span {
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
    answer(database.write_with(Isolation::Committed, work).await)
}

async fn send_in(tx: &Transaction, new: &NewMessage, id: &str) -> Result<(Message, Event), Halt> {
    let turn = event::next(tx, &new.conversation, Step::Message).await?;
    member::must_be_in(tx, &new.conversation, &new.sender).await?;
    if block::alone_with_blocked(tx, &new.conversation, &new.sender).await? {
        return Err(Refusal::Blocked.into());
    }
    let message = Message {
        id: id.to_owned(),
        content: new.content.clone(),
        sender_id: new.sender.clone(),
        timestamp: At(tx.now()),
        conversation_id: new.conversation.clone(),
        number: turn.newest,
        sequence: turn.sequence,
        client_id: new.client_id.clone(),
        edited_at: None,
        deleted: false,
    };
    if !messages::insert(tx, &message).await? {
        // The same message, from another try that was under way. What it did is undone here.
        return Err(Halt::Refused(Refusal::Taken));
    }
    outbox::tell_message(tx, &message)?;
    let happening = Happening::Message { message: message.clone() };
    let event = event::write(tx, &new.conversation, turn.sequence, &new.sender, &happening).await?;
    Ok((message, event))
}

/// A message that the sender has sent under this id already.
pub(crate) async fn sent_before(database: &impl Read, new: &NewMessage) -> Result<Option<Message>, Error> {
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
        let turn = event::next(&tx, conversation, Step::Other).await?;
        let mut message = own(&tx, conversation, id, by).await?;
        message.content = content.to_owned();
        message.edited_at = Some(At(tx.now()));
        messages::set_content(&tx, id, content).await?;
        let happening = Happening::Edited { message: message.clone() };
        let event = event::write(&tx, conversation, turn.sequence, by, &happening).await?;
        Ok((message, event))
    };
    answer(database.write_with(Isolation::Committed, work).await)
}

/// Deletes a message: its content is gone from the database, too.
pub(crate) async fn delete(
    database: &Database,
    conversation: &ConversationId,
    id: &str,
    by: &UserId,
) -> Answer<(Message, Event)> {
    let work = |tx: Transaction| async move {
        let turn = event::next(&tx, conversation, Step::Other).await?;
        let mut message = own(&tx, conversation, id, by).await?;
        message.content = String::new();
        message.deleted = true;
        messages::erase(&tx, id).await?;
        event::scrub(&tx, &message).await?;
        outbox::tell_members(&tx, conversation)?;
        let happening = Happening::Deleted { message: message.clone() };
        let event = event::write(&tx, conversation, turn.sequence, by, &happening).await?;
        Ok((message, event))
    };
    answer(database.write_with(Isolation::Committed, work).await)
}

/// The message, if it is there and the user's own.
async fn own(
    tx: &Transaction,
    conversation: &ConversationId,
    id: &str,
    by: &UserId,
) -> Result<Message, Halt> {
    member::must_be_in(tx, conversation, by).await?;
    let message = messages::get(tx, id).await?;
    let there = message.filter(|message| !message.deleted && message.conversation_id == *conversation);
    let message = there.ok_or(Refusal::NoMessage)?;
    if message.sender_id != *by {
        return Err(Refusal::NotYours.into());
    }
    Ok(message)
}

/// Whether this can be a message.
pub(crate) fn check(content: &str, client_id: Option<&str>) -> Result<(), Refusal> {
    let bad = |field, reason: &str| Err(Refusal::Bad { field, reason: reason.to_owned() });
    if content.trim().is_empty() {
        return bad("content", "must not be empty");
    }
    if content.len() > LONGEST_CONTENT || content.contains('\0') {
        return bad("content", "at most 4 KiB of text");
    }
    match client_id {
        Some(id) if id.is_empty() || id.len() > LONGEST_CLIENT_ID || id.contains('\0') => {
            bad("clientId", "1 to 128 bytes")
        }
        _ => Ok(()),
    }
}
