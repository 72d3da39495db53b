//! Values as the HTTP API shows them, with fields in snake_case. In Redis and in the frames of clients, the same values have
//! the documented names (`senderId`).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::conversation::event::Timestamp;
use crate::keys::{ConversationId, UserId};
use crate::{Attachment, ListedMessage, Message, MessagePage, ReactionCount, Receipt, Thread, UnreadCount};

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
    /// The id of the message that this one replies to.
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    /// The id of the first message of the thread, if this is a reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    mentions: Vec<UserId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attachments: Vec<AttachmentView>,
}

/// A reference to a file that is stored elsewhere.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Attachment)]
pub(crate) struct AttachmentView {
    /// An absolute `https` URL.
    #[schema(max_length = 2048)]
    url: String,
    #[schema(max_length = 255)]
    name: String,
    /// Such as `image/png`.
    #[schema(max_length = 127)]
    media_type: String,
    /// In bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 9_007_199_254_740_991i64)]
    size: Option<u64>,
}

/// A message, its reactions and the number of replies.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ListedMessage)]
pub(crate) struct ListedMessageView {
    #[serde(flatten)]
    message: MessageView,
    /// In the order in which they were first used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reactions: Vec<ReactionCount>,
    /// The replies in the thread that this message starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_count: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageList {
    /// In the order of their sequence.
    messages: Vec<ListedMessageView>,
    /// The event up to which reactions and replies are counted.
    offset: u64,
}

/// One thread.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Thread)]
pub(crate) struct ThreadView {
    /// The first message. Missing if the reader cannot see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<ListedMessageView>,
    #[serde(flatten)]
    replies: MessageList,
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
    /// How many of them mention the user.
    mentions: u64,
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
            reply_to: message.reply_to,
            thread_id: message.thread_id,
            mentions: message.mentions.0,
            attachments: message.attachments.0.into_iter().map(AttachmentView::from).collect(),
        }
    }
}

impl From<ListedMessage> for ListedMessageView {
    fn from(ListedMessage { message, reactions, reply_count }: ListedMessage) -> Self {
        let reply_count = (reply_count > 0).then_some(reply_count);
        Self { message: message.into(), reactions, reply_count }
    }
}

impl From<MessagePage> for MessageList {
    fn from(MessagePage { messages, offset }: MessagePage) -> Self {
        Self { messages: messages.into_iter().map(ListedMessageView::from).collect(), offset }
    }
}

impl From<Thread> for ThreadView {
    fn from(Thread { root, replies }: Thread) -> Self {
        Self { root: root.map(ListedMessageView::from), replies: replies.into() }
    }
}

impl From<Attachment> for AttachmentView {
    fn from(Attachment { url, name, media_type, size }: Attachment) -> Self {
        Self { url, name, media_type, size }
    }
}

impl From<AttachmentView> for Attachment {
    fn from(AttachmentView { url, name, media_type, size }: AttachmentView) -> Self {
        Self { url, name, media_type, size }
    }
}

impl From<Receipt> for ReceiptView {
    fn from(Receipt { read_sequence, delivered_sequence }: Receipt) -> Self {
        Self { read_sequence, delivered_sequence }
    }
}

impl From<UnreadCount> for UnreadCountView {
    fn from(UnreadCount { conversation_id, unread, mentions, stamp }: UnreadCount) -> Self {
        Self { conversation_id, unread, mentions, stamp }
    }
}
