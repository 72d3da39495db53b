//! The HTTP API for users: presence, sockets, unread counts, rate limits, blocks, tokens.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use hob_store::limit::Decision;
use hob_web::{Audited, Credential, Json, Path, Problem, Query, Routes};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::view::UnreadCountView;
use super::{READ, WRITE, ok_or_problem, user_id};
use crate::keys::{Keys, NamedChannel, SocketId};
use crate::{BlockAction, Chat, Presence, PresenceChange, namespace};

/// The most users of one request.
const MAX_USERS: usize = 1_000;
/// The longest validity of a token.
const MAX_TOKEN_S: u64 = 7 * 24 * 3600;

pub(super) fn routes() -> Routes<Chat> {
    Routes::new()
        .api(READ, routes!(get_presence))
        .write(READ, Audited::No, routes!(get_presences))
        .api(READ, routes!(get_unread))
        .api(READ, routes!(list_sockets))
        .write(WRITE, Audited::No, routes!(add_socket))
        .write(WRITE, Audited::No, routes!(remove_socket))
        .api(READ, routes!(get_limit))
        .write(WRITE, Audited::No, routes!(take_limit))
        .api(READ, routes!(list_blocked))
        .write(WRITE, Audited::No, routes!(block_user))
        .write(WRITE, Audited::No, routes!(unblock_user))
        .write(WRITE, Audited::As("chat.token.issue"), routes!(issue_token))
        .write(WRITE, Audited::As("chat.token.revoke"), routes!(revoke_tokens))
        .api(READ, routes!(get_ban))
        .write(WRITE, Audited::As("chat.user.ban"), routes!(ban_user))
        .write(WRITE, Audited::As("chat.user.unban"), routes!(unban_user))
}

/// Get whether a user is online, and when they were last seen.
#[utoipa::path(get, path = "/api/v1/chat/users/{id}/presence", params(("id" = String, Path, max_length = 128)), tag = "chat",
    responses((status = 200, body = Presence)))]
async fn get_presence(State(chat): State<Chat>, Path(id): Path<String>) -> Result<Json<Presence>, Problem> {
    let mut presences = chat.presence(&[user_id("id", &id)?]).await?;
    Ok(Json(presences.pop().ok_or_else(|| Problem::not_found("user"))?))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsersBody {
    #[schema(max_items = 1000, value_type = Vec<hob_web::Text128>)]
    users: Vec<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PresenceList {
    /// In the order of the request.
    users: Vec<Presence>,
}

/// Get the presence of many users.
#[utoipa::path(post, path = "/api/v1/chat/users/presence", request_body = UsersBody, tag = "chat",
    responses((status = 200, body = PresenceList)))]
async fn get_presences(
    State(chat): State<Chat>,
    Json(body): Json<UsersBody>,
) -> Result<Json<PresenceList>, Problem> {
    if body.users.len() > MAX_USERS {
        return Err(Problem::invalid("users", "at most 1000"));
    }
    let users: Result<Vec<_>, _> = body.users.iter().map(|user| user_id("users", user)).collect();
    Ok(Json(PresenceList { users: chat.presence(&users?).await? }))
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UnreadList {
    total: u64,
    conversations: Vec<UnreadCountView>,
}

/// Get the unread counts of a user.
#[utoipa::path(get, path = "/api/v1/chat/users/{id}/unread", params(("id" = String, Path, max_length = 128)), tag = "chat",
    responses((status = 200, body = UnreadList)))]
async fn get_unread(State(chat): State<Chat>, Path(id): Path<String>) -> Result<Json<UnreadList>, Problem> {
    let (conversations, total) = chat.unread(&user_id("id", &id)?).await?;
    let conversations = conversations.into_iter().map(UnreadCountView::from).collect();
    Ok(Json(UnreadList { total, conversations }))
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SocketList {
    sockets: Vec<String>,
}

/// List the open sockets of a user, on all nodes.
#[utoipa::path(get, path = "/api/v1/chat/users/{id}/sockets", params(("id" = String, Path, max_length = 128)), tag = "chat",
    responses((status = 200, body = SocketList)))]
async fn list_sockets(State(chat): State<Chat>, Path(id): Path<String>) -> Result<Json<SocketList>, Problem> {
    let sockets = chat.sockets(&user_id("id", &id)?).await?;
    Ok(Json(SocketList { sockets: sockets.iter().map(ToString::to_string).collect() }))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SocketBody {
    #[schema(max_length = 128)]
    socket_id: String,
}

/// Count a socket of another program as open. It belongs to this node and is removed when the node dies.
#[utoipa::path(post, path = "/api/v1/chat/users/{id}/sockets", params(("id" = String, Path, max_length = 128)), tag = "chat",
    request_body = SocketBody, responses((status = 200, body = Presence)))]
async fn add_socket(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Json(body): Json<SocketBody>,
) -> Result<Json<Presence>, Problem> {
    let (user, socket) = (user_id("id", &id)?, socket_id(&body.socket_id)?);
    if chat.add_user_socket(&user, &socket).await? == PresenceChange::LimitReached {
        let max = Keys::SOCKETS_MAX_LEN;
        return Err(Problem::conflict(format!("A user can have at most {max} sockets.")));
    }
    get_presence(State(chat), Path(id)).await
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemovedSockets {
    /// Only this socket. Without it, all sockets of the user.
    #[param(max_length = 128)]
    socket_id: Option<String>,
}

/// Disconnect a user on all nodes, or close one socket: a connection of a client, or a socket of another program. The client
/// does not reconnect by itself (code 3503). With the last socket, the user goes offline.
#[utoipa::path(delete, path = "/api/v1/chat/users/{id}/sockets", tag = "chat",
    params(("id" = String, Path, max_length = 128), RemovedSockets), responses((status = 200, body = Presence)))]
async fn remove_socket(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Query(query): Query<RemovedSockets>,
) -> Result<Json<Presence>, Problem> {
    let user = user_id("id", &id)?;
    match &query.socket_id {
        Some(socket) => {
            chat.remove_user_socket(&user, &socket_id(socket)?).await?;
        }
        None => chat.disconnect_user(&user).await?,
    }
    get_presence(State(chat), Path(id)).await
}

/// The message rate limit of a user.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Limit {
    allowed: bool,
    limit: u32,
    remaining: u32,
    reset_after_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

/// Get how many messages a user can still send. Takes nothing from the limit.
#[utoipa::path(get, path = "/api/v1/chat/users/{id}/limit", params(("id" = String, Path, max_length = 128)), tag = "chat",
    responses((status = 200, body = Limit)))]
async fn get_limit(State(chat): State<Chat>, Path(id): Path<String>) -> Result<Json<Limit>, Problem> {
    let decision = chat.check_message_rate(&user_id("id", &id)?, 0).await;
    let mut limit = Limit::from(decision);
    limit.allowed = limit.remaining > 0;
    Ok(Json(limit))
}

/// Take one message from a user's rate limit.
#[utoipa::path(post, path = "/api/v1/chat/users/{id}/limit", params(("id" = String, Path, max_length = 128)), tag = "chat",
    responses((status = 200, body = Limit)))]
async fn take_limit(State(chat): State<Chat>, Path(id): Path<String>) -> Result<Json<Limit>, Problem> {
    Ok(Json(chat.check_message_rate(&user_id("id", &id)?, 1).await.into()))
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BlockedList {
    blocked: Vec<String>,
}

/// List the users that a user has blocked.
#[utoipa::path(get, path = "/api/v1/chat/users/{id}/blocks", params(("id" = String, Path, max_length = 128)), tag = "chat",
    responses((status = 200, body = BlockedList)))]
async fn list_blocked(
    State(chat): State<Chat>,
    Path(id): Path<String>,
) -> Result<Json<BlockedList>, Problem> {
    let blocked = chat.blocked_by(&user_id("id", &id)?).await?;
    Ok(Json(BlockedList { blocked: blocked.iter().map(ToString::to_string).collect() }))
}

#[derive(Debug, Deserialize, IntoParams, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BlockBody {
    #[schema(max_length = 128)]
    #[param(max_length = 128)]
    user_id: String,
}

/// Block a user: nothing more is delivered between the two.
#[utoipa::path(post, path = "/api/v1/chat/users/{id}/blocks", params(("id" = String, Path, max_length = 128)), tag = "chat",
    request_body = BlockBody, responses((status = 204)))]
async fn block_user(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Json(body): Json<BlockBody>,
) -> Result<StatusCode, Problem> {
    set_block(&chat, &id, &body.user_id, BlockAction::Block).await
}

/// Unblock a user.
#[utoipa::path(delete, path = "/api/v1/chat/users/{id}/blocks", tag = "chat",
    params(("id" = String, Path, max_length = 128), BlockBody), responses((status = 204)))]
async fn unblock_user(
    State(chat): State<Chat>,
    Path(id): Path<String>,
    Query(query): Query<BlockBody>,
) -> Result<StatusCode, Problem> {
    set_block(&chat, &id, &query.user_id, BlockAction::Unblock).await
}

async fn set_block(chat: &Chat, id: &str, other: &str, action: BlockAction) -> Result<StatusCode, Problem> {
    ok_or_problem(chat.block(&user_id("id", id)?, &user_id("user_id", other)?, action).await)?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenBody {
    /// How long the token is valid, in seconds.
    #[serde(default = "an_hour")]
    #[schema(minimum = 1, maximum = 604800)]
    ttl: u64,
    /// The channel of a configured namespace that the token is for. Without it, the token is for connections.
    #[schema(max_length = 255)]
    channel: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChatToken)]
pub(crate) struct Token {
    token: String,
}

/// Issue a token with which a user can connect, or subscribe to a channel of a configured namespace. Requires that the chat has a
/// secret. The token of a connection ends when the API token or the session that issued it is revoked or expires.
#[utoipa::path(post, path = "/api/v1/chat/users/{id}/token", params(("id" = String, Path, max_length = 128)), tag = "chat",
    request_body = TokenBody, responses((status = 200, body = Token)))]
async fn issue_token(
    State(chat): State<Chat>,
    credential: Credential,
    Path(id): Path<String>,
    Json(body): Json<TokenBody>,
) -> Result<Json<Token>, Problem> {
    if !(1..=MAX_TOKEN_S).contains(&body.ttl) {
        return Err(Problem::invalid("ttl", "must be from 1 second to 7 days"));
    }
    let channel = match &body.channel {
        Some(channel) => Some(named_channel(&chat, channel)?),
        None => None,
    };
    let valid = Duration::from_secs(body.ttl);
    let token = chat.issue_token_with(&credential, &user_id("id", &id)?, channel.as_ref(), valid);
    Ok(Json(Token { token: token.ok_or_else(|| Problem::not_found("token secret"))? }))
}

/// Revoke all tokens of a user that were issued up to now, and close the connections that use them. A token without `iat` is
/// refused from then on.
#[utoipa::path(delete, path = "/api/v1/chat/users/{id}/tokens", params(("id" = String, Path, max_length = 128)), tag = "chat",
    responses((status = 204)))]
async fn revoke_tokens(State(chat): State<Chat>, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    chat.revoke_tokens(&user_id("id", &id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Ban {
    banned: bool,
}

/// Get whether a user is banned.
#[utoipa::path(get, path = "/api/v1/chat/users/{id}/ban", params(("id" = String, Path, max_length = 128)), tag = "chat",
    responses((status = 200, body = Ban)))]
async fn get_ban(State(chat): State<Chat>, Path(id): Path<String>) -> Result<Json<Ban>, Problem> {
    Ok(Json(Ban { banned: chat.is_banned(&user_id("id", &id)?).await? }))
}

/// Ban a user: close the connections of the user on all nodes within five seconds, and refuse new ones with any token.
#[utoipa::path(put, path = "/api/v1/chat/users/{id}/ban", params(("id" = String, Path, max_length = 128)), tag = "chat",
    responses((status = 204)))]
async fn ban_user(State(chat): State<Chat>, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    chat.ban(&user_id("id", &id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// End the ban of a user. Tokens from before stay revoked.
#[utoipa::path(delete, path = "/api/v1/chat/users/{id}/ban", params(("id" = String, Path, max_length = 128)), tag = "chat",
    responses((status = 204)))]
async fn unban_user(State(chat): State<Chat>, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    if chat.unban(&user_id("id", &id)?).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found("ban"))
    }
}

fn named_channel(chat: &Chat, channel: &str) -> Result<NamedChannel, Problem> {
    let config = chat.config();
    let found = namespace::find(&config, channel).map(|(channel, _)| channel);
    found.ok_or_else(|| Problem::invalid("channel", "not in a configured namespace"))
}

fn an_hour() -> u64 {
    3600
}

fn socket_id(id: &str) -> Result<SocketId, Problem> {
    SocketId::new(id).map_err(|error| Problem::invalid("socket_id", error.to_string()))
}

impl From<Decision> for Limit {
    fn from(decision: Decision) -> Self {
        let quota = decision.quota();
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let retry_after_ms = match decision {
            Decision::Allowed(_) => None,
            Decision::Denied { retry_after, .. } => Some(ms(retry_after)),
        };
        Self {
            allowed: decision.is_allowed(),
            limit: quota.limit,
            remaining: quota.remaining,
            reset_after_ms: ms(quota.reset_after),
            retry_after_ms,
        }
    }
}
