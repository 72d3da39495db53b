//! The HTTP API for messages, receipts and typing.

use axum::extract::State;
use axum::http::StatusCode;
use hob_web::{Audited, Json, Path, Problem, Query, Routes};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::view::{AttachmentView, MessageList, MessageView, ReceiptView};
use super::{READ, WRITE, conversation_id, ok_or_problem, sequence_number, user_id};
use crate::{Attachment, Chat, MessageRange, NewMessage, ReceiptKind, SentMessage, TypingState};

pub(super) fn routes() -> Routes<Chat> {
    Routes::new()
        .api(READ, routes!(list_messages))
        .write(WRITE, Audited::No, routes!(send_message))
        .write(WRITE, Audited::No, routes!(edit_message))
        .write(WRITE, Audited::No, routes!(delete_message))
        .write(WRITE, Audited::No, routes!(mark_read))
        .write(WRITE, Audited::No, routes!(mark_delivered))
        .write(WRITE, Audited::No, routes!(set_typing))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessagesQuery {
    /// Messages after this sequence, oldest first.
    #[param(maximum = 9_223_372_036_854_775_807i64)]
    after: Option<u64>,
    /// The newest messages before this sequence.
    #[param(maximum = 9_223_372_036_854_775_807i64)]
    before: Option<u64>,
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u16>,
    /// Show the messages as this member sees them.
    #[param(max_length = 128)]
    user_id: Option<String>,
}

/// List messages of a conversation with their reactions: the newest, or those after or before a sequence.
#[utoipa::path(get, path = "/api/v1/chat/conversations/{id}/messages", tag = "chat",
    params(("id" = String, Path, max_length = 128), MessagesQuery), responses((status = 200, body = MessageList)))]
async fn list_messages(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Query(query): Query<MessagesQuery>,
) -> Result<Json<MessageList>, Problem> {
    let range = match (query.after, query.before) {
        (None, None) => MessageRange::Newest,
        (Some(after), None) => MessageRange::After(sequence_number("after", after)?),
        (None, Some(before)) => MessageRange::Before(sequence_number("before", before)?),
        (Some(_), Some(_)) => return Err(Problem::invalid("before", "cannot be combined with `after`")),
    };
    let viewer = query.user_id.as_deref().map(|user| user_id("user_id", user)).transpose()?;
    let limit = query.limit.unwrap_or(50);
    let page = chat.list_messages(&conversation_id(&id)?, viewer.as_ref(), range, limit).await;
    Ok(Json(ok_or_problem(page)?.into()))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageBody {
    #[schema(max_length = 128)]
    sender_id: String,
    /// May be missing if there are attachments.
    #[serde(default)]
    #[schema(max_length = 4096)]
    content: String,
    /// A repeated request with the same id returns the first message.
    #[schema(max_length = 128)]
    client_id: Option<String>,
    /// The id of the message of this conversation that this one replies to.
    #[schema(max_length = 128)]
    reply_to: Option<String>,
    /// Members of the conversation.
    #[serde(default)]
    #[schema(max_items = 20, value_type = Vec<hob_web::Text128>)]
    mentions: Vec<String>,
    #[serde(default)]
    #[schema(max_items = 8)]
    attachments: Vec<AttachmentView>,
}

/// Send a message. It is in the database when the response arrives. The response to a repeated request has the status 200 and
/// the first message.
#[utoipa::path(post, path = "/api/v1/chat/conversations/{id}/messages", params(("id" = String, Path, max_length = 128)), tag = "chat",
    request_body = MessageBody, responses((status = 201, body = MessageView), (status = 200, body = MessageView)))]
async fn send_message(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Json(body): Json<MessageBody>,
) -> Result<(StatusCode, Json<MessageView>), Problem> {
    let mentions: Result<Vec<_>, _> = body.mentions.iter().map(|user| user_id("mentions", user)).collect();
    let new = NewMessage {
        conversation: conversation_id(&id)?,
        sender: user_id("sender_id", &body.sender_id)?,
        content: body.content,
        client_id: body.client_id,
        reply_to: body.reply_to,
        mentions: mentions?,
        attachments: body.attachments.into_iter().map(Attachment::from).collect(),
    };
    let (status, message) = match ok_or_problem(chat.send_once(&new).await)? {
        SentMessage::New(message) => (StatusCode::CREATED, message),
        SentMessage::Repeated(message) => (StatusCode::OK, message),
    };
    Ok((status, Json(message.into())))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditBody {
    #[schema(max_length = 128)]
    user_id: String,
    #[schema(max_length = 4096)]
    content: String,
}

/// Replace the content of a message.
#[utoipa::path(patch, path = "/api/v1/chat/conversations/{id}/messages/{message}", tag = "chat",
    params(("id" = String, Path, max_length = 128), ("message" = String, Path, max_length = 128)), request_body = EditBody,
    responses((status = 200, body = MessageView)))]
async fn edit_message(
    State(chat): State<Chat>,
    Path((id, message)): Path<(String, String)>,
    Json(body): Json<EditBody>,
) -> Result<Json<MessageView>, Problem> {
    let by = user_id("user_id", &body.user_id)?;
    let edited = ok_or_problem(chat.edit(&conversation_id(&id)?, &message, &by, &body.content).await)?;
    Ok(Json(edited.into()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeletionQuery {
    #[param(max_length = 128)]
    user_id: String,
}

/// Delete a message and erase its content from the database.
#[utoipa::path(delete, path = "/api/v1/chat/conversations/{id}/messages/{message}", tag = "chat",
    params(("id" = String, Path, max_length = 128), ("message" = String, Path, max_length = 128), DeletionQuery), responses((status = 204)))]
async fn delete_message(
    State(chat): State<Chat>,
    Path((id, message)): Path<(String, String)>,
    Query(query): Query<DeletionQuery>,
) -> Result<StatusCode, Problem> {
    let by = user_id("user_id", &query.user_id)?;
    ok_or_problem(chat.delete(&conversation_id(&id)?, &message, &by).await)?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgressBody {
    #[schema(max_length = 128)]
    user_id: String,
    /// Everything up to this event.
    #[schema(maximum = 9_223_372_036_854_775_807i64)]
    sequence: u64,
}

/// Mark everything up to a sequence as read by a member.
#[utoipa::path(post, path = "/api/v1/chat/conversations/{id}/read", params(("id" = String, Path, max_length = 128)), tag = "chat",
    request_body = ProgressBody, responses((status = 200, body = ReceiptView)))]
async fn mark_read(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Json(body): Json<ProgressBody>,
) -> Result<Json<ReceiptView>, Problem> {
    record_receipt(&chat, &id, &body, ReceiptKind::Read).await
}

/// Mark everything up to a sequence as delivered to a device of a member.
#[utoipa::path(post, path = "/api/v1/chat/conversations/{id}/delivered", params(("id" = String, Path, max_length = 128)), tag = "chat",
    request_body = ProgressBody, responses((status = 200, body = ReceiptView)))]
async fn mark_delivered(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Json(body): Json<ProgressBody>,
) -> Result<Json<ReceiptView>, Problem> {
    record_receipt(&chat, &id, &body, ReceiptKind::Delivered).await
}

async fn record_receipt(
    chat: &Chat,
    id: &str,
    body: &ProgressBody,
    kind: ReceiptKind,
) -> Result<Json<ReceiptView>, Problem> {
    let user = user_id("user_id", &body.user_id)?;
    let up_to = sequence_number("sequence", body.sequence)?;
    let receipt = chat.record_receipt(&conversation_id(id)?, &user, up_to, kind).await;
    Ok(Json(ok_or_problem(receipt)?.into()))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TypingBody {
    #[schema(max_length = 128)]
    user_id: String,
    typing: bool,
}

/// Set that a member is typing, for five seconds, or has stopped.
#[utoipa::path(post, path = "/api/v1/chat/conversations/{id}/typing", params(("id" = String, Path, max_length = 128)), tag = "chat",
    request_body = TypingBody, responses((status = 204)))]
async fn set_typing(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Json(body): Json<TypingBody>,
) -> Result<StatusCode, Problem> {
    let state = if body.typing { TypingState::Typing } else { TypingState::Stopped };
    ok_or_problem(chat.typing(&conversation_id(&id)?, &user_id("user_id", &body.user_id)?, state).await)?;
    Ok(StatusCode::NO_CONTENT)
}
