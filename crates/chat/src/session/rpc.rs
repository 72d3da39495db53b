//! The RPC methods of a connection: each is the operation of the same name of [`Chat`], as the user of the connection.

mod reading;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::chat::conversations::TypingState;
use crate::conversation::attachment::Attachment;
use crate::conversation::block::BlockAction;
use crate::conversation::member::ReceiptKind;
use crate::conversation::message::NewMessage;
use crate::conversation::reaction::ReactionAction;
use crate::keys::{ConversationId, UserId};
use crate::session::internal;
use crate::session::protocol::{self, ReplyError};
use crate::{Answer, Chat, Refusal};

/// A message that a client sends, or publishes to a conversation.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SendRequest {
    /// Ignored in a publication, which has a channel.
    conversation_id: Option<ConversationId>,
    /// May be missing if there are attachments.
    #[serde(default)]
    content: String,
    #[serde(default)]
    client_id: Option<String>,
    #[serde(default)]
    reply_to: Option<String>,
    #[serde(default)]
    mentions: Vec<UserId>,
    #[serde(default)]
    attachments: Vec<Attachment>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EditRequest {
    conversation_id: ConversationId,
    message_id: String,
    content: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeleteRequest {
    conversation_id: ConversationId,
    message_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReceiptRequest {
    conversation_id: ConversationId,
    sequence: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypingRequest {
    conversation_id: ConversationId,
    typing: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockRequest {
    user_id: UserId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReactionRequest {
    conversation_id: ConversationId,
    message_id: String,
    emoji: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExpiryRequest {
    conversation_id: ConversationId,
    message_ttl: Option<u64>,
}

#[derive(Serialize)]
struct EmptyResult {}

/// Executes an RPC call of a user.
pub(crate) async fn call(
    chat: &Chat,
    user: &UserId,
    method: &str,
    data: Option<&RawValue>,
) -> Result<Box<RawValue>, ReplyError> {
    match method {
        "send" => {
            let mut request: SendRequest = parse(data)?;
            let missing = || ReplyError::BAD_REQUEST.with_detail("data: missing field `conversationId`");
            let conversation = request.conversation_id.take().ok_or_else(missing)?;
            serialize(chat.send(&request.into_new(conversation, user)).await)
        }
        "edit" => {
            let EditRequest { conversation_id, message_id, content } = parse(data)?;
            serialize(chat.edit(&conversation_id, &message_id, user, &content).await)
        }
        "delete" => {
            let DeleteRequest { conversation_id, message_id } = parse(data)?;
            serialize(chat.delete(&conversation_id, &message_id, user).await)
        }
        "react" | "unreact" => {
            let ReactionRequest { conversation_id, message_id, emoji } = parse(data)?;
            let action = if method == "react" { ReactionAction::Add } else { ReactionAction::Remove };
            let reacted = chat.react(&conversation_id, &message_id, user, &emoji, action).await;
            serialize(reacted.map(|done| done.map(|_| EmptyResult {})))
        }
        "expire" => {
            let ExpiryRequest { conversation_id, message_ttl } = parse(data)?;
            let set = chat.set_message_ttl(&conversation_id, user, message_ttl).await;
            serialize(set.map(|done| done.map(|()| EmptyResult {})))
        }
        "read" | "delivered" => {
            let ReceiptRequest { conversation_id, sequence } = parse(data)?;
            let kind = if method == "read" { ReceiptKind::Read } else { ReceiptKind::Delivered };
            serialize(chat.record_receipt(&conversation_id, user, sequence, kind).await)
        }
        "typing" => {
            let TypingRequest { conversation_id, typing } = parse(data)?;
            let state = if typing { TypingState::Typing } else { TypingState::Stopped };
            serialize(
                chat.typing(&conversation_id, user, state).await.map(|done| done.map(|()| EmptyResult {})),
            )
        }
        "block" | "unblock" => {
            let BlockRequest { user_id } = parse(data)?;
            let action = if method == "block" { BlockAction::Block } else { BlockAction::Unblock };
            serialize(chat.block(user, &user_id, action).await.map(|done| done.map(|_| EmptyResult {})))
        }
        _ => match reading::call(chat, user, method, data).await {
            Some(answer) => answer,
            None => Err(ReplyError::METHOD_NOT_FOUND.with_detail(METHODS)),
        },
    }
}

const METHODS: &str = "use send, edit, delete, react, unreact, expire, read, delivered, typing, block, unblock, messages, thread, \
                       reactions, mentions or search";

impl SendRequest {
    fn into_new(self, conversation: ConversationId, sender: &UserId) -> NewMessage {
        let Self { content, client_id, reply_to, mentions, attachments, .. } = self;
        NewMessage {
            client_id,
            reply_to,
            mentions,
            attachments,
            ..NewMessage::text(conversation, sender.clone(), content)
        }
    }
}

/// Sends a message that a client published to a conversation.
pub(crate) async fn publish(
    chat: &Chat,
    user: &UserId,
    conversation: ConversationId,
    data: &RawValue,
) -> Result<(), ReplyError> {
    // The text of the message is enough.
    let new = if data.get().starts_with('"') {
        let content: String = parse(Some(data))?;
        NewMessage::text(conversation, user.clone(), content)
    } else {
        parse::<SendRequest>(Some(data))?.into_new(conversation, user)
    };
    serialize(chat.send(&new).await).map(drop)
}

/// The error for a refusal. Does not reveal to other users whether a conversation exists.
pub(crate) fn error_of(refusal: &Refusal) -> ReplyError {
    match refusal {
        Refusal::ConversationNotFound
        | Refusal::NotMember
        | Refusal::NotSender
        | Refusal::Blocked
        | Refusal::TokenRevoked
        | Refusal::Banned => ReplyError::PERMISSION_DENIED,
        Refusal::MessageNotFound => ReplyError::NOT_FOUND.with_detail("messageId"),
        Refusal::AlreadyExists => ReplyError::CONFLICT,
        Refusal::RateLimited { retry_after } => {
            ReplyError::TOO_MANY_REQUESTS.with_detail(format_args!("retry in {retry_after:.0?}"))
        }
        Refusal::LimitExceeded { .. } => ReplyError::LIMIT_EXCEEDED.with_detail(refusal),
        Refusal::InvalidField { field, reason } => {
            ReplyError::BAD_REQUEST.with_detail(format_args!("{}: {reason}", camel_case(field)))
        }
    }
}

/// The name of a field in the data of a call: `client_id` is `clientId`.
fn camel_case(field: &str) -> String {
    let mut words = field.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (initial, rest) = word.split_at(1);
        name + &initial.to_ascii_uppercase() + rest
    })
}

fn parse<T: for<'de> Deserialize<'de>>(data: Option<&RawValue>) -> Result<T, ReplyError> {
    let data = data.ok_or_else(|| ReplyError::BAD_REQUEST.with_detail("missing field `data`"))?;
    protocol::parse(data.get().as_bytes())
        .map_err(|reason| ReplyError::BAD_REQUEST.with_detail(format_args!("data: {reason}")))
}

fn serialize<T: Serialize>(answer: Answer<T>) -> Result<Box<RawValue>, ReplyError> {
    let done = answer.map_err(internal)?.map_err(|refusal| error_of(&refusal))?;
    serde_json::value::to_raw_value(&done).map_err(|error| internal(error.into()))
}
