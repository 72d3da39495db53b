//! Events for the outbox. They are written in the transaction of a change, so that the work that follows it is done
//! even if this node dies.

use hob_database::Transaction;
use hob_database::outbox::Topic;
use serde::{Deserialize, Serialize};

use crate::conversation::event::Timestamp;
use crate::conversation::message::Message;
use crate::error::Rollback;
use crate::keys::{ConversationId, UserId};
use crate::webhook::{MessageRef, Notice};

/// A new message (C10). Other services read this topic.
pub const MESSAGE_CREATED: Topic = Topic("chat.message.created");
/// A message that was edited or deleted. The payload is a notice for webhooks.
pub(crate) const MESSAGE_CHANGED: Topic = Topic("chat.message.changed");
/// A user who went online or offline. The payload is a notice for webhooks.
pub(crate) const PRESENCE_CHANGED: Topic = Topic("chat.presence.changed");
/// Unread counts that may have changed.
pub const COUNTS: Topic = Topic("chat.counts");

/// The payload of [`MESSAGE_CREATED`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageCreated {
    pub conversation_id: ConversationId,
    pub message_id: String,
    pub sender_id: UserId,
    pub timestamp: Timestamp,
    /// The sequence of the message; 0 in events of older versions.
    #[serde(default)]
    pub sequence: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mentions: Vec<UserId>,
}

/// The payload of [`COUNTS`]. The key of the event is the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum RecountScope {
    #[serde(rename = "Everybodys")]
    AllMembers,
    #[serde(rename = "Of")]
    Member(UserId),
}

pub(crate) fn emit_message_created(tx: &Transaction, message: &Message) -> Result<(), Rollback> {
    let created = MessageCreated {
        conversation_id: message.conversation_id.clone(),
        message_id: message.id.clone(),
        sender_id: message.sender_id.clone(),
        timestamp: message.timestamp,
        sequence: message.sequence,
        mentions: message.mentions.0.clone(),
    };
    let key = message.conversation_id.as_str();
    Ok(tx.emit(MESSAGE_CREATED, key, serde_json::to_string(&created)?)?)
}

/// Emits that a message was edited or deleted.
pub(crate) fn emit_message_changed(
    tx: &Transaction,
    message: &Message,
    notice: impl Fn(MessageRef) -> Notice,
) -> Result<(), Rollback> {
    let notice = notice(MessageRef::from(message));
    Ok(tx.emit(MESSAGE_CHANGED, message.conversation_id.as_str(), serde_json::to_string(&notice)?)?)
}

pub(crate) fn emit_recount_all(tx: &Transaction, conversation: &ConversationId) -> Result<(), Rollback> {
    emit(tx, conversation, &RecountScope::AllMembers)
}

pub(crate) fn emit_recount(
    tx: &Transaction,
    conversation: &ConversationId,
    user: &UserId,
) -> Result<(), Rollback> {
    emit(tx, conversation, &RecountScope::Member(user.clone()))
}

fn emit(tx: &Transaction, conversation: &ConversationId, scope: &RecountScope) -> Result<(), Rollback> {
    Ok(tx.emit(COUNTS, conversation.as_str(), serde_json::to_string(scope)?)?)
}
