//! The HTTP API for conversations and their members.

use axum::extract::State;
use axum::http::StatusCode;
use hob_database::PageRequest;
use hob_web::{AuditDetail, Audited, Json, Path, Problem, Query, Routes};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::{READ, WRITE, conversation_id, ok_or_problem, user_id};
use crate::{Chat, Conversation, Member, NewConversation};

pub(super) fn routes() -> Routes<Chat> {
    Routes::new()
        .api(READ, routes!(list_conversations))
        .write(WRITE, Audited::As("chat.conversation.open"), routes!(open_conversation))
        .api(READ, routes!(get_conversation))
        .write(WRITE, Audited::As("chat.conversation.rename"), routes!(rename_conversation))
        .write(WRITE, Audited::As("chat.conversation.expiry"), routes!(set_expiry))
        .api(READ, routes!(list_members))
        .write(WRITE, Audited::As("chat.member.add"), routes!(add_member))
        .write(WRITE, Audited::As("chat.member.remove"), routes!(remove_member))
}

/// A page of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Only the conversations of this user.
    #[param(max_length = 128)]
    user_id: Option<String>,
    /// The `next` value of the previous page.
    #[param(max_length = 2048)]
    after: Option<String>,
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u16>,
}

/// A conversation in a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ListedConversation {
    id: String,
    title: String,
    /// The sequence of the last event.
    sequence: u64,
    changed_at: String,
    /// Only if the list is of one user.
    #[serde(skip_serializing_if = "Option::is_none")]
    unread: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConversationList {
    conversations: Vec<ListedConversation>,
    /// Pass this as `after` to get the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// List conversations, most recently changed first.
#[utoipa::path(get, path = "/api/v1/chat/conversations", params(ListQuery), tag = "chat",
    responses((status = 200, body = ConversationList)))]
async fn list_conversations(
    State(chat): State<Chat>,
    Query(query): Query<ListQuery>,
) -> Result<Json<ConversationList>, Problem> {
    let request = PageRequest::parse(query.after.as_deref(), query.limit)?;
    let list = match &query.user_id {
        Some(user) => {
            let user = user_id("user_id", user)?;
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
#[serde(deny_unknown_fields)]
pub(crate) struct ConversationBody {
    /// Generated if missing. `total` is reserved.
    #[schema(max_length = 128)]
    id: Option<String>,
    #[schema(max_length = 200)]
    title: String,
    #[schema(max_length = 128)]
    created_by: String,
    /// The members besides `created_by`.
    #[serde(default)]
    #[schema(max_items = 9999, value_type = Vec<hob_web::Text128>)]
    members: Vec<String>,
}

/// Open a conversation.
#[utoipa::path(post, path = "/api/v1/chat/conversations", request_body = ConversationBody, tag = "chat",
    responses((status = 201, body = Conversation)))]
async fn open_conversation(
    State(chat): State<Chat>,
    Json(body): Json<ConversationBody>,
) -> Result<(StatusCode, AuditDetail, Json<Conversation>), Problem> {
    let id = body.id.unwrap_or_else(|| format!("{:032x}", rand::random::<u128>()));
    let members: Result<Vec<_>, _> = body.members.iter().map(|user| user_id("members", user)).collect();
    let new = NewConversation {
        id: conversation_id(&id)?,
        title: body.title,
        created_by: user_id("created_by", &body.created_by)?,
        members: members?,
    };
    let opened = ok_or_problem(chat.open_conversation(&new).await)?;
    Ok((StatusCode::CREATED, AuditDetail::Of(id), Json(opened)))
}

/// Get a conversation.
#[utoipa::path(get, path = "/api/v1/chat/conversations/{id}", params(("id" = String, Path, max_length = 128)), tag = "chat",
    responses((status = 200, body = Conversation)))]
async fn get_conversation(
    State(chat): State<Chat>,
    Path(id): Path<String>,
) -> Result<Json<Conversation>, Problem> {
    let conversation = chat.conversation(&conversation_id(&id)?).await?;
    Ok(Json(conversation.ok_or_else(|| Problem::not_found("conversation"))?))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenameBody {
    #[schema(max_length = 128)]
    user_id: String,
    #[schema(max_length = 200)]
    title: String,
}

/// Rename a conversation.
#[utoipa::path(patch, path = "/api/v1/chat/conversations/{id}", params(("id" = String, Path, max_length = 128)), tag = "chat",
    request_body = RenameBody, responses((status = 204)))]
async fn rename_conversation(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Json(body): Json<RenameBody>,
) -> Result<StatusCode, Problem> {
    let by = user_id("user_id", &body.user_id)?;
    ok_or_problem(chat.rename(&conversation_id(&id)?, &by, &body.title).await)?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpiryBody {
    #[schema(max_length = 128)]
    user_id: String,
    /// In seconds, at most ten years. `null`: messages do not expire.
    #[schema(minimum = 1, maximum = 315_360_000)]
    message_ttl: Option<u64>,
}

/// Set after which time the messages of a conversation are deleted. Also applies to earlier messages.
#[utoipa::path(put, path = "/api/v1/chat/conversations/{id}/expiry", params(("id" = String, Path, max_length = 128)), tag = "chat",
    request_body = ExpiryBody, responses((status = 204)))]
async fn set_expiry(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Json(body): Json<ExpiryBody>,
) -> Result<StatusCode, Problem> {
    let by = user_id("user_id", &body.user_id)?;
    ok_or_problem(chat.set_message_ttl(&conversation_id(&id)?, &by, body.message_ttl).await)?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct MembersQuery {
    /// The last user of the previous page.
    #[serde(default)]
    #[param(max_length = 128)]
    after: String,
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u16>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MemberList {
    members: Vec<Member>,
}

/// List the members of a conversation, by id, and how far each has read.
#[utoipa::path(get, path = "/api/v1/chat/conversations/{id}/members", tag = "chat",
    params(("id" = String, Path, max_length = 128), MembersQuery), responses((status = 200, body = MemberList)))]
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
#[serde(deny_unknown_fields)]
pub(crate) struct MemberBody {
    #[schema(max_length = 128)]
    user_id: String,
    /// The member who adds the user. The server, if missing.
    #[schema(max_length = 128)]
    by: Option<String>,
}

/// Add a member.
#[utoipa::path(post, path = "/api/v1/chat/conversations/{id}/members", params(("id" = String, Path, max_length = 128)), tag = "chat",
    request_body = MemberBody, responses((status = 204)))]
async fn add_member(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Json(body): Json<MemberBody>,
) -> Result<StatusCode, Problem> {
    let by = body.by.as_deref().map(|by| user_id("by", by)).transpose()?;
    let user = user_id("user_id", &body.user_id)?;
    ok_or_problem(chat.add_member(&conversation_id(&id)?, &user, by.as_ref()).await)?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemovalQuery {
    #[param(max_length = 128)]
    user_id: String,
    #[param(max_length = 128)]
    by: Option<String>,
}

/// Remove a member. When the response arrives, the user receives nothing more of the conversation.
#[utoipa::path(delete, path = "/api/v1/chat/conversations/{id}/members", tag = "chat",
    params(("id" = String, Path, max_length = 128), RemovalQuery), responses((status = 204)))]
async fn remove_member(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Query(query): Query<RemovalQuery>,
) -> Result<StatusCode, Problem> {
    let by = query.by.as_deref().map(|by| user_id("by", by)).transpose()?;
    let user = user_id("user_id", &query.user_id)?;
    ok_or_problem(chat.remove_member(&conversation_id(&id)?, &user, by.as_ref()).await)?;
    Ok(StatusCode::NO_CONTENT)
}
