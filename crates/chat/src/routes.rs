//! The HTTP face: the same as over the WebSocket, for other services; and the WebSocket itself.

use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hob_records::PageRequest;
use hob_web::{Access, Json, Path, Problem, Query, Routes};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use crate::keys::{ConversationId, UserId};
use crate::{
    Chat, Conversation, Member, Message, NewConversation, NewMessage, Progress, Receipt, Refusal, Span,
    Typist,
};
use crate::{Error, feed, pages, socket, users};

const READ: Access = Access::read("chat");
const WRITE: Access = Access::write("chat");

impl Chat {
    /// The routes of the chat.
    pub fn routes(&self) -> Routes {
        let api = Routes::new()
            .api(READ, routes!(list_conversations))
            .api(WRITE, routes!(open_conversation))
            .api(READ, routes!(get_conversation))
            .api(WRITE, routes!(rename_conversation))
            .api(READ, routes!(list_members))
            .api(WRITE, routes!(add_member))
            .api(WRITE, routes!(remove_member))
            .api(READ, routes!(list_messages))
            .api(WRITE, routes!(send_message))
            .api(WRITE, routes!(edit_message))
            .api(WRITE, routes!(delete_message))
            .api(WRITE, routes!(mark_read))
            .api(WRITE, routes!(mark_delivered))
            .api(WRITE, routes!(set_typing))
            .page(Access::Public, "/connection/websocket", connect);
        api.merge(users::routes()).merge(feed::routes()).merge(pages::routes()).with_state(self.clone())
    }
}

/// Clients of the Centrifugo protocol. Who they are is said by the token in their first command.
async fn connect(State(chat): State<Chat>, upgrade: WebSocketUpgrade) -> Response {
    let config = chat.config();
    if chat.inner.hub.load().connections >= u64::from(config.max_connections) {
        return Problem::unavailable("There are as many connections as this node takes.").into_response();
    }
    let most = config.max_frame_bytes as usize;
    upgrade
        .read_buffer_size(4 * 1024)
        .write_buffer_size(4 * 1024)
        .max_write_buffer_size(1024 * 1024)
        .max_message_size(most)
        .max_frame_size(most)
        .on_upgrade(move |socket| socket::serve(chat, socket))
}

/// A page of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListQuery {
    /// Only conversations that this user is in.
    user_id: Option<String>,
    /// Where the last page ended.
    after: Option<String>,
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u16>,
}

/// A conversation in a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListedConversation {
    id: String,
    title: String,
    /// The last event.
    sequence: u64,
    changed_at: String,
    /// Only in the list of one user.
    #[serde(skip_serializing_if = "Option::is_none")]
    unread: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConversationList {
    conversations: Vec<ListedConversation>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Conversations, those that changed last first.
#[utoipa::path(get, path = "/api/v1/chat/conversations", params(ListQuery), tag = "chat",
    responses((status = 200, body = ConversationList)))]
async fn list_conversations(
    State(chat): State<Chat>,
    Query(query): Query<ListQuery>,
) -> Result<Json<ConversationList>, Problem> {
    let request = PageRequest::parse(query.after.as_deref(), query.limit)?;
    let list = match &query.user_id {
        Some(user) => {
            let user = user_id("userId", user)?;
            let (unread, _) = chat.unread(&user).await?;
            let page = chat.conversations_of(&user, &request).await?;
            let next = page.next.as_ref().map(ToString::to_string);
            let listed = page.rows.into_iter().map(|row| ListedConversation {
                unread: unread.iter().find(|count| count.conversation_id == row.id).map(|count| count.unread),
                id: row.id.to_string(),
                title: row.title,
                sequence: row.sequence,
                changed_at: row.changed_at.to_string(),
            });
            ConversationList { conversations: listed.collect(), next }
        }
        None => {
            let page = chat.conversations(&request).await?;
            let next = page.next.as_ref().map(ToString::to_string);
            let listed = page.rows.into_iter().map(|row| ListedConversation {
                id: row.id.to_string(),
                title: row.title,
                sequence: row.sequence,
                changed_at: row.changed_at.to_string(),
                unread: None,
            });
            ConversationList { conversations: listed.collect(), next }
        }
    };
    Ok(Json(list))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ConversationBody {
    /// Made up if missing. `total` is refused.
    #[schema(max_length = 128)]
    id: Option<String>,
    #[schema(max_length = 200)]
    title: String,
    #[schema(max_length = 128)]
    created_by: String,
    /// Besides the one who opens it.
    #[serde(default)]
    #[schema(max_items = 9999)]
    members: Vec<String>,
}

/// Opens a conversation.
#[utoipa::path(post, path = "/api/v1/chat/conversations", request_body = ConversationBody, tag = "chat",
    responses((status = 201, body = Conversation)))]
async fn open_conversation(
    State(chat): State<Chat>,
    Json(body): Json<ConversationBody>,
) -> Result<(StatusCode, Json<Conversation>), Problem> {
    let id = body.id.unwrap_or_else(|| format!("{:032x}", rand::random::<u128>()));
    let members: Result<Vec<_>, _> = body.members.iter().map(|user| user_id("members", user)).collect();
    let new = NewConversation {
        id: conversation_id(&id)?,
        title: body.title,
        created_by: user_id("createdBy", &body.created_by)?,
        members: members?,
    };
    Ok((StatusCode::CREATED, Json(granted(chat.open_conversation(&new).await)?)))
}

/// One conversation.
#[utoipa::path(get, path = "/api/v1/chat/conversations/{id}", params(("id" = String, Path)), tag = "chat",
    responses((status = 200, body = Conversation)))]
async fn get_conversation(
    State(chat): State<Chat>,
    Path(id): Path<String>,
) -> Result<Json<Conversation>, Problem> {
    let conversation = chat.conversation(&conversation_id(&id)?).await?;
    Ok(Json(conversation.ok_or_else(|| Problem::not_found("conversation"))?))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RenameBody {
    user_id: String,
    title: String,
}

/// Gives a conversation another title.
#[utoipa::path(patch, path = "/api/v1/chat/conversations/{id}", params(("id" = String, Path)), tag = "chat",
    request_body = RenameBody, responses((status = 204)))]
async fn rename_conversation(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Json(body): Json<RenameBody>,
) -> Result<StatusCode, Problem> {
    let by = user_id("userId", &body.user_id)?;
    granted(chat.rename(&conversation_id(&id)?, &by, &body.title).await)?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct MembersQuery {
    /// The last user of the page before.
    #[serde(default)]
    after: String,
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u16>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MemberList {
    members: Vec<Member>,
}

/// The members of a conversation, by id, and how far each has read.
#[utoipa::path(get, path = "/api/v1/chat/conversations/{id}/members", tag = "chat",
    params(("id" = String, Path), MembersQuery), responses((status = 200, body = MemberList)))]
async fn list_members(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Query(query): Query<MembersQuery>,
) -> Result<Json<MemberList>, Problem> {
    let members =
        chat.members(&conversation_id(&id)?, &query.after, query.limit.unwrap_or(100).max(1)).await?;
    Ok(Json(MemberList { members }))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct MemberBody {
    user_id: String,
    /// The member who adds them; nobody in particular if missing.
    by: Option<String>,
}

/// Adds a member.
#[utoipa::path(post, path = "/api/v1/chat/conversations/{id}/members", params(("id" = String, Path)), tag = "chat",
    request_body = MemberBody, responses((status = 204)))]
async fn add_member(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Json(body): Json<MemberBody>,
) -> Result<StatusCode, Problem> {
    let by = body.by.as_deref().map(|by| user_id("by", by)).transpose()?;
    let user = user_id("userId", &body.user_id)?;
    granted(chat.add_member(&conversation_id(&id)?, &user, by.as_ref()).await)?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RemovalQuery {
    user_id: String,
    by: Option<String>,
}

/// Removes a member. Once this is answered, they are told nothing more of the conversation.
#[utoipa::path(delete, path = "/api/v1/chat/conversations/{id}/members", tag = "chat",
    params(("id" = String, Path), RemovalQuery), responses((status = 204)))]
async fn remove_member(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Query(query): Query<RemovalQuery>,
) -> Result<StatusCode, Problem> {
    let by = query.by.as_deref().map(|by| user_id("by", by)).transpose()?;
    let user = user_id("userId", &query.user_id)?;
    granted(chat.remove_member(&conversation_id(&id)?, &user, by.as_ref()).await)?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MessagesQuery {
    /// Messages after this sequence, oldest first.
    after: Option<u64>,
    /// The newest messages before this sequence.
    before: Option<u64>,
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u16>,
    /// As this member sees them.
    user_id: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageList {
    /// In the order of their sequence.
    messages: Vec<Message>,
}

/// Messages of a conversation: the newest ones, or those after or before a sequence.
#[utoipa::path(get, path = "/api/v1/chat/conversations/{id}/messages", tag = "chat",
    params(("id" = String, Path), MessagesQuery), responses((status = 200, body = MessageList)))]
async fn list_messages(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Query(query): Query<MessagesQuery>,
) -> Result<Json<MessageList>, Problem> {
    let span = match (query.after, query.before) {
        (None, None) => Span::Newest,
        (Some(after), None) => Span::After(number("after", after)?),
        (None, Some(before)) => Span::Before(number("before", before)?),
        (Some(_), Some(_)) => return Err(Problem::invalid("before", "either `after` or `before`")),
    };
    let viewer = query.user_id.as_deref().map(|user| user_id("userId", user)).transpose()?;
    let limit = query.limit.unwrap_or(50);
    let messages = granted(chat.messages(&conversation_id(&id)?, viewer.as_ref(), span, limit).await)?;
    Ok(Json(MessageList { messages }))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct MessageBody {
    sender_id: String,
    #[schema(max_length = 4096)]
    content: String,
    /// Repeating a request under the same id sends one message.
    #[schema(max_length = 128)]
    client_id: Option<String>,
}

/// Sends a message. It is in the records when this is answered.
#[utoipa::path(post, path = "/api/v1/chat/conversations/{id}/messages", params(("id" = String, Path)), tag = "chat",
    request_body = MessageBody, responses((status = 201, body = Message)))]
async fn send_message(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Json(body): Json<MessageBody>,
) -> Result<(StatusCode, Json<Message>), Problem> {
    let new = NewMessage {
        conversation: conversation_id(&id)?,
        sender: user_id("senderId", &body.sender_id)?,
        content: body.content,
        client_id: body.client_id,
    };
    Ok((StatusCode::CREATED, Json(granted(chat.send(&new).await)?)))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct EditBody {
    user_id: String,
    content: String,
}

/// Gives a message new content.
#[utoipa::path(patch, path = "/api/v1/chat/conversations/{id}/messages/{message}", tag = "chat",
    params(("id" = String, Path), ("message" = String, Path)), request_body = EditBody,
    responses((status = 200, body = Message)))]
async fn edit_message(
    State(chat): State<Chat>,
    Path((id, message)): Path<(String, String)>,
    Json(body): Json<EditBody>,
) -> Result<Json<Message>, Problem> {
    let by = user_id("userId", &body.user_id)?;
    Ok(Json(granted(chat.edit(&conversation_id(&id)?, &message, &by, &body.content).await)?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeletionQuery {
    user_id: String,
}

/// Deletes a message; its content is gone from the records, too.
#[utoipa::path(delete, path = "/api/v1/chat/conversations/{id}/messages/{message}", tag = "chat",
    params(("id" = String, Path), ("message" = String, Path), DeletionQuery), responses((status = 204)))]
async fn delete_message(
    State(chat): State<Chat>,
    Path((id, message)): Path<(String, String)>,
    Query(query): Query<DeletionQuery>,
) -> Result<StatusCode, Problem> {
    let by = user_id("userId", &query.user_id)?;
    granted(chat.delete(&conversation_id(&id)?, &message, &by).await)?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ProgressBody {
    user_id: String,
    /// Everything up to this event.
    sequence: u64,
}

/// Says that a member has read everything up to a sequence.
#[utoipa::path(post, path = "/api/v1/chat/conversations/{id}/read", params(("id" = String, Path)), tag = "chat",
    request_body = ProgressBody, responses((status = 200, body = Receipt)))]
async fn mark_read(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Json(body): Json<ProgressBody>,
) -> Result<Json<Receipt>, Problem> {
    progress(&chat, &id, &body, Progress::Read).await
}

/// Says that everything up to a sequence has reached a device of a member.
#[utoipa::path(post, path = "/api/v1/chat/conversations/{id}/delivered", params(("id" = String, Path)), tag = "chat",
    request_body = ProgressBody, responses((status = 200, body = Receipt)))]
async fn mark_delivered(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Json(body): Json<ProgressBody>,
) -> Result<Json<Receipt>, Problem> {
    progress(&chat, &id, &body, Progress::Delivered).await
}

async fn progress(
    chat: &Chat,
    id: &str,
    body: &ProgressBody,
    progress: Progress,
) -> Result<Json<Receipt>, Problem> {
    let user = user_id("userId", &body.user_id)?;
    let up_to = number("sequence", body.sequence)?;
    Ok(Json(granted(chat.progress(&conversation_id(id)?, &user, up_to, progress).await)?))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TypingBody {
    user_id: String,
    typing: bool,
}

/// Says that a member is typing, for five seconds, or has stopped.
#[utoipa::path(post, path = "/api/v1/chat/conversations/{id}/typing", params(("id" = String, Path)), tag = "chat",
    request_body = TypingBody, responses((status = 204)))]
async fn set_typing(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Json(body): Json<TypingBody>,
) -> Result<StatusCode, Problem> {
    let typist = if body.typing { Typist::Typing } else { Typist::Stopped };
    granted(chat.typing(&conversation_id(&id)?, &user_id("userId", &body.user_id)?, typist).await)?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) fn conversation_id(id: &str) -> Result<ConversationId, Problem> {
    ConversationId::new(id).map_err(|error| Problem::invalid("id", error.to_string()))
}

pub(crate) fn user_id(field: &str, id: &str) -> Result<UserId, Problem> {
    UserId::new(id).map_err(|error| Problem::invalid(field, error.to_string()))
}

/// The records keep numbers up to 2⁶³ − 1.
fn number(field: &str, number: u64) -> Result<u64, Problem> {
    if i64::try_from(number).is_ok() { Ok(number) } else { Err(Problem::invalid(field, "no such sequence")) }
}

/// What was done, or the problem that a refusal is.
pub(crate) fn granted<T>(answer: crate::Answer<T>) -> Result<T, Problem> {
    answer?.map_err(|refusal| {
        let words = refusal.to_string();
        match refusal {
            Refusal::NoConversation => Problem::not_found("conversation"),
            Refusal::NoMessage => Problem::not_found("message"),
            Refusal::NotMember | Refusal::NotYours | Refusal::Blocked => Problem::forbidden(words),
            Refusal::Taken => Problem::conflict(words),
            Refusal::TooOften { retry_after } => {
                Problem::too_many(words, retry_after.max(Duration::from_secs(1)))
            }
            Refusal::TooMany { .. } => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, words),
            Refusal::Bad { field, reason } => Problem::invalid(field, reason),
        }
    })
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Records(error) => error.into(),
            Error::Hot(error) => error.into(),
            Error::Unconfirmed => Self::unavailable(
                "The change is made, but not every node has confirmed it. Ask again to be certain.",
            ),
            error => Self::internal(error),
        }
    }
}
