//! Messages: deduplicated by client id, edited and deleted only by their sender.

use std::collections::HashSet;

use hob_database::{Database, Isolation, Read, Transaction, from_row};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::conversation::attachment::{self, Attachment, AttachmentUrls};
use crate::conversation::block;
use crate::conversation::event::{self, Event, EventClass, EventPayload, NextSequence, Timestamp};
use crate::conversation::member;
use crate::conversation::outbox;
use crate::database::json_list::JsonList;
use crate::database::{conversations, members, mentions, messages, reactions};
use crate::error::{Answer, Refusal, Rollback, into_answer};
use crate::keys::{ConversationId, UserId};
use crate::webhook::Notice;

/// The longest content. JSON takes up to six bytes for one, so with its attachments a message stays below the 64 KiB limit of
/// the cache.
pub(crate) const MAX_CONTENT_BYTES: usize = 4 * 1024;
const MAX_CLIENT_ID_BYTES: usize = 128;
/// The most users that a message mentions.
const MAX_MENTIONS: usize = 20;

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
    /// The id of the message that this one replies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// The id of the first message of the thread, if this is a reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    #[serde(default, skip_serializing_if = "JsonList::is_empty")]
    pub mentions: JsonList<UserId>,
    #[serde(default, skip_serializing_if = "JsonList::is_empty")]
    pub attachments: JsonList<Attachment>,
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
    deleted,
    reply_to,
    thread_id,
    mentions,
    attachments
});

impl Message {
    /// A message that gets these numbers. If it is a reply, `thread_id` is the first message of its thread.
    pub(crate) fn new(
        tx: &Transaction,
        new: &NewMessage,
        next: NextSequence,
        thread_id: Option<String>,
    ) -> Self {
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
            reply_to: new.reply_to.clone(),
            thread_id,
            mentions: JsonList(new.mentions.clone()),
            attachments: JsonList(new.attachments.clone()),
        }
    }

    /// Erases what a deleted message said.
    fn erase(&mut self) {
        self.content = String::new();
        self.mentions = JsonList::default();
        self.attachments = JsonList::default();
        self.deleted = true;
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
    /// The id of a message of the same conversation.
    pub reply_to: Option<String>,
    /// Members of the conversation.
    pub mentions: Vec<UserId>,
    pub attachments: Vec<Attachment>,
}

impl NewMessage {
    /// A message that has only a content.
    pub fn text(conversation: ConversationId, sender: UserId, content: impl Into<String>) -> Self {
        Self {
            conversation,
            sender,
            content: content.into(),
            client_id: None,
            reply_to: None,
            mentions: Vec::new(),
            attachments: Vec::new(),
        }
    }
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

/// Sends a message that [`check_new`] accepted. It is in the database when this returns.
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
    let thread = thread_of(tx, new).await?;
    check_mentioned(tx, new).await?;
    let message = Message::new(tx, new, next, thread);
    if !messages::insert_all(tx, &[&message]).await? {
        // A concurrent send with the same client id won. This transaction is rolled back.
        return Err(Rollback::Refused(Refusal::AlreadyExists));
    }
    mentions::insert_all(tx, std::iter::once(&message)).await?;
    outbox::emit_message_created(tx, &message)?;
    let payload = EventPayload::Message { message: message.clone() };
    let event = event::write(tx, &new.conversation, next.sequence, &new.sender, &payload).await?;
    Ok((message, event))
}

/// The thread of a reply.
async fn thread_of(tx: &Transaction, new: &NewMessage) -> Result<Option<String>, Rollback> {
    let Some(id) = new.reply_to.as_deref() else { return Ok(None) };
    let threads = messages::threads(tx, &new.conversation, &HashSet::from([id])).await?;
    let thread = threads.into_values().next();
    Ok(Some(thread.ok_or_else(|| bad("reply_to", "not a message of this conversation"))?))
}

async fn check_mentioned(tx: &Transaction, new: &NewMessage) -> Result<(), Rollback> {
    if new.mentions.is_empty() {
        return Ok(());
    }
    let mentioned: HashSet<&UserId> = new.mentions.iter().collect();
    let members = members::among(tx, &new.conversation, &mentioned).await?;
    match mentioned.into_iter().find(|user| !members.contains(*user)) {
        Some(user) => Err(bad("mentions", &format!("{user} is not a member")).into()),
        None => Ok(()),
    }
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
    if let Err(refusal) = check_content(content) {
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
        if !message.mentions.is_empty() {
            mentions::delete_all(&tx, &message).await?;
        }
        reactions::delete_all(&tx, conversation, &[message.sequence]).await?;
        message.erase();
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

/// Deletes messages of one conversation. The caller has locked it. Returns them with their events.
pub(crate) async fn erase_all(
    tx: &Transaction,
    conversation: &ConversationId,
    messages: Vec<Message>,
) -> Result<Vec<(Message, Event)>, Rollback> {
    let count = messages.len() as u64;
    if count == 0 {
        return Ok(Vec::new());
    }
    let advanced = conversations::advance(tx, conversation, count, 0).await?;
    let (last, _) = advanced.ok_or(Refusal::ConversationNotFound)?;
    let sequences: Vec<u64> = messages.iter().map(|message| message.sequence).collect();
    reactions::delete_all(tx, conversation, &sequences).await?;
    let mut erased = Vec::with_capacity(messages.len());
    for (mut message, sequence) in messages.into_iter().zip(last - count + 1..) {
        if !message.mentions.is_empty() {
            mentions::delete_all(tx, &message).await?;
        }
        message.erase();
        messages::erase(tx, &message.id).await?;
        event::erase_content(tx, &message).await?;
        outbox::emit_message_changed(tx, &message, Notice::Deleted)?;
        let payload = EventPayload::Deleted { message: message.clone() };
        let event = event::write(tx, conversation, sequence, &message.sender_id, &payload).await?;
        erased.push((message, event));
    }
    outbox::emit_recount_all(tx, conversation)?;
    Ok(erased)
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

/// Checks the parts of a message that do not depend on its conversation.
pub(crate) fn check_new(new: &NewMessage, urls: AttachmentUrls) -> Result<(), Refusal> {
    // The files can be the whole message.
    if !new.content.is_empty() || new.attachments.is_empty() {
        check_content(&new.content)?;
    }
    if new
        .client_id
        .as_deref()
        .is_some_and(|id| id.is_empty() || id.len() > MAX_CLIENT_ID_BYTES || id.contains('\0'))
    {
        return Err(bad("client_id", "1 to 128 bytes"));
    }
    let distinct: HashSet<&UserId> = new.mentions.iter().collect();
    if new.mentions.len() > MAX_MENTIONS || distinct.len() < new.mentions.len() {
        return Err(bad("mentions", "at most 20 different users"));
    }
    attachment::check(&new.attachments, urls)
}

fn check_content(content: &str) -> Result<(), Refusal> {
    if content.trim().is_empty() {
        return Err(bad("content", "must not be empty"));
    }
    if content.len() > MAX_CONTENT_BYTES || content.contains('\0') {
        return Err(bad("content", "at most 4 KiB of text"));
    }
    Ok(())
}

fn bad(field: &'static str, reason: &str) -> Refusal {
    Refusal::InvalidField { field, reason: reason.to_owned() }
}
