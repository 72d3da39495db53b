//! Values as the HTTP API shows them, with fields in snake_case. In Redis and in the frames of clients, the same values have
//! the documented names (`senderId`).

use serde::Serialize;
use utoipa::ToSchema;

use crate::conversation::event::Timestamp;
use crate::keys::{ConversationId, UserId};
use crate::{Message, Receipt, UnreadCount};

/// A message.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Message)]
pub(crate) struct MessageView {
    id: String,
    content: String,
    #[schema(value_type = String)]
    sender_id: UserId,
    #[schema(value_type = String)]
    timestamp: Timestamp,
    #[schema(value_type = String)]
    conversation_id: ConversationId,
    /// The number of the message in the conversation: 1, 2, 3, …
    number: u64,
    /// The sequence of its event: its offset in the channel.
    sequence: u64,
    /// The id that the sender chose.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    edited_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    deleted: bool,
}

/// How far a member has received and read.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Receipt)]
pub(crate) struct ReceiptView {
    read_sequence: u64,
    delivered_sequence: u64,
}

/// The unread messages of a user in one conversation.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UnreadCount)]
pub(crate) struct UnreadCountView {
    #[schema(value_type = String)]
    conversation_id: ConversationId,
    unread: u64,
    /// Grows with every change that can affect the count.
    stamp: u64,
}

impl From<Message> for MessageView {
    fn from(message: Message) -> Self {
        Self {
            id: message.id,
            content: message.content,
            sender_id: message.sender_id,
            timestamp: message.timestamp,
            conversation_id: message.conversation_id,
            number: message.number,
            sequence: message.sequence,
            client_id: message.client_id,
            edited_at: message.edited_at,
            deleted: message.deleted,
        }
    }
}

impl From<Receipt> for ReceiptView {
    fn from(Receipt { read_sequence, delivered_sequence }: Receipt) -> Self {
        Self { read_sequence, delivered_sequence }
    }
}

impl From<UnreadCount> for UnreadCountView {
    fn from(UnreadCount { conversation_id, unread, stamp }: UnreadCount) -> Self {
        Self { conversation_id, unread, stamp }
    }
}
