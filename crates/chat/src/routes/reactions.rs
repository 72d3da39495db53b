//! The HTTP API for reactions, threads, mentions and search.

use axum::extract::State;
use axum::http::StatusCode;
use hob_database::PageRequest;
use hob_web::{Audited, Json, Path, Problem, Query, Routes};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::view::{ListedMessageView, ThreadView};
use super::{READ, WRITE, conversation_id, ok_or_problem, sequence_number, user_id};
use crate::conversation::event::Timestamp;
use crate::keys::UserId;
use crate::{Chat, Mentions, Reaction, ReactionAction, SearchQuery};

pub(super) fn routes() -> Routes<Chat> {
    Routes::new()
        .api(READ, routes!(list_reactions))
        .write(WRITE, Audited::No, routes!(add_reaction))
        .write(WRITE, Audited::No, routes!(remove_reaction))
        .api(READ, routes!(get_thread))
        .api(READ, routes!(list_mentions))
        .api(READ, routes!(search_messages))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReactionsQuery {
    /// Only this reaction.
    #[param(max_length = 64)]
    emoji: Option<String>,
    /// Without the reactions of users that are hidden from this member.
    #[param(max_length = 128)]
    user_id: Option<String>,
    /// The `next` value of the previous page.
    #[param(max_length = 2048)]
    after: Option<String>,
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u16>,
}

/// A user's reaction to a message.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Reaction)]
pub(crate) struct ReactionView {
    emoji: String,
    #[schema(value_type = String)]
    user_id: UserId,
    #[schema(value_type = String)]
    timestamp: Timestamp,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReactionList {
    /// By emoji and user.
    reactions: Vec<ReactionView>,
    /// Pass this as `after` to get the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// List who has reacted to a message.
#[utoipa::path(get, path = "/api/v1/chat/conversations/{id}/messages/{message}/reactions", tag = "chat",
    params(("id" = String, Path, max_length = 128), ("message" = String, Path, max_length = 128), ReactionsQuery),
    responses((status = 200, body = ReactionList)))]
async fn list_reactions(
    State(chat): State<Chat>,
    Path((id, message)): Path<(String, String)>,
    Query(query): Query<ReactionsQuery>,
) -> Result<Json<ReactionList>, Problem> {
    let page = PageRequest::parse(query.after.as_deref(), query.limit)?;
    let viewer = query.user_id.as_deref().map(|user| user_id("user_id", user)).transpose()?;
    let id = conversation_id(&id)?;
    let found = chat.reactions(&id, viewer.as_ref(), &message, query.emoji.as_deref(), &page).await;
    let found = ok_or_problem(found)?;
    let next = found.next.as_ref().map(ToString::to_string);
    let into_view =
        |Reaction { emoji, user_id, reacted_at }| ReactionView { emoji, user_id, timestamp: reacted_at };
    Ok(Json(ReactionList { reactions: found.rows.into_iter().map(into_view).collect(), next }))
}

#[derive(Debug, Deserialize, IntoParams, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReactionBody {
    #[schema(max_length = 128)]
    #[param(max_length = 128)]
    user_id: String,
    /// An emoji or another short text without spaces.
    #[schema(max_length = 64)]
    #[param(max_length = 64)]
    emoji: String,
}

/// React to a message. Idempotent.
#[utoipa::path(post, path = "/api/v1/chat/conversations/{id}/messages/{message}/reactions", tag = "chat",
    params(("id" = String, Path, max_length = 128), ("message" = String, Path, max_length = 128)), request_body = ReactionBody,
    responses((status = 204)))]
async fn add_reaction(
    State(chat): State<Chat>,
    Path(path): Path<(String, String)>,
    Json(body): Json<ReactionBody>,
) -> Result<StatusCode, Problem> {
    set_reaction(&chat, path, &body, ReactionAction::Add).await
}

/// Remove a reaction. Idempotent.
#[utoipa::path(delete, path = "/api/v1/chat/conversations/{id}/messages/{message}/reactions", tag = "chat",
    params(("id" = String, Path, max_length = 128), ("message" = String, Path, max_length = 128), ReactionBody),
    responses((status = 204)))]
async fn remove_reaction(
    State(chat): State<Chat>,
    Path(path): Path<(String, String)>,
    Query(query): Query<ReactionBody>,
) -> Result<StatusCode, Problem> {
    set_reaction(&chat, path, &query, ReactionAction::Remove).await
}

async fn set_reaction(
    chat: &Chat,
    (id, message): (String, String),
    ReactionBody { user_id: by, emoji }: &ReactionBody,
    action: ReactionAction,
) -> Result<StatusCode, Problem> {
    let (id, by) = (conversation_id(&id)?, user_id("user_id", by)?);
    ok_or_problem(chat.react(&id, &message, &by, emoji, action).await)?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct ThreadQuery {
    /// Replies after this sequence.
    #[serde(default)]
    #[param(maximum = 9_223_372_036_854_775_807i64)]
    after: u64,
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u16>,
    /// Show the thread as this member sees it.
    #[param(max_length = 128)]
    user_id: Option<String>,
}

/// Get the thread of a message: its first message, and the replies in order.
#[utoipa::path(get, path = "/api/v1/chat/conversations/{id}/messages/{message}/thread", tag = "chat",
    params(("id" = String, Path, max_length = 128), ("message" = String, Path, max_length = 128), ThreadQuery),
    responses((status = 200, body = ThreadView)))]
async fn get_thread(
    State(chat): State<Chat>,
    Path((id, message)): Path<(String, String)>,
    Query(query): Query<ThreadQuery>,
) -> Result<Json<ThreadView>, Problem> {
    let viewer = query.user_id.as_deref().map(|user| user_id("user_id", user)).transpose()?;
    let (after, limit) = (sequence_number("after", query.after)?, query.limit.unwrap_or(50));
    let id = conversation_id(&id)?;
    Ok(Json(ok_or_problem(chat.thread(&id, viewer.as_ref(), &message, after, limit).await)?.into()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct MentionsQuery {
    /// Only messages that the user has not read.
    #[serde(default)]
    unread: bool,
    /// The `next` value of the previous page.
    #[param(max_length = 2048)]
    after: Option<String>,
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u16>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FoundMessages {
    /// Newest first.
    messages: Vec<ListedMessageView>,
    /// Pass this as `after` to get the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// List the messages that mention a user, newest first, in the conversations of the user.
#[utoipa::path(get, path = "/api/v1/chat/users/{id}/mentions", tag = "chat",
    params(("id" = String, Path, max_length = 128), MentionsQuery), responses((status = 200, body = FoundMessages)))]
async fn list_mentions(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Query(query): Query<MentionsQuery>,
) -> Result<Json<FoundMessages>, Problem> {
    let page = PageRequest::parse(query.after.as_deref(), query.limit)?;
    let which = if query.unread { Mentions::Unread } else { Mentions::All };
    Ok(Json(chat.mentions(&user_id("id", &id)?, which, &page).await?.into()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchParams {
    /// Words that a message must all have. `"two words"` must follow each other, `word*` is the beginning of a word, and `-word` must not
    /// occur.
    #[param(max_length = 200)]
    q: String,
    /// Only in this conversation.
    #[param(max_length = 128)]
    conversation_id: Option<String>,
    /// The `next` value of the previous page.
    #[param(max_length = 2048)]
    after: Option<String>,
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u16>,
}

/// Search the messages that a user can read, newest first.
#[utoipa::path(get, path = "/api/v1/chat/users/{id}/search", tag = "chat",
    params(("id" = String, Path, max_length = 128), SearchParams), responses((status = 200, body = FoundMessages)))]
async fn search_messages(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Query(params): Query<SearchParams>,
) -> Result<Json<FoundMessages>, Problem> {
    let page = PageRequest::parse(params.after.as_deref(), params.limit)?;
    let query = ok_or_problem(Ok(SearchQuery::parse(&params.q)))?;
    let conversation = params.conversation_id.as_deref().map(conversation_id).transpose()?;
    Ok(Json(chat.search(&user_id("id", &id)?, conversation.as_ref(), &query, &page).await?.into()))
}

impl From<hob_database::Page<crate::ListedMessage>> for FoundMessages {
    fn from(page: hob_database::Page<crate::ListedMessage>) -> Self {
        let next = page.next.as_ref().map(ToString::to_string);
        Self { messages: page.rows.into_iter().map(ListedMessageView::from).collect(), next }
    }
}
