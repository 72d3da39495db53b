//! The RPC methods that read: messages, thread, reactions, mentions, search.

use hob_database::{Page, PageRequest};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{error_of, parse, serialize};
use crate::conversation::event::Timestamp;
use crate::keys::{ConversationId, UserId};
use crate::session::internal;
use crate::session::protocol::ReplyError;
use crate::{Chat, ListedMessage, Mentions, MessageRange, Reaction, SearchQuery};

const DEFAULT_LIMIT: u16 = 50;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessagesRequest {
    conversation_id: ConversationId,
    after: Option<u64>,
    before: Option<u64>,
    limit: Option<u16>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ThreadRequest {
    conversation_id: ConversationId,
    message_id: String,
    #[serde(default)]
    after: u64,
    limit: Option<u16>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReactionsRequest {
    conversation_id: ConversationId,
    message_id: String,
    emoji: Option<String>,
    after: Option<String>,
    limit: Option<u16>,
}

#[derive(Deserialize)]
struct MentionsRequest {
    #[serde(default)]
    unread: bool,
    after: Option<String>,
    limit: Option<u16>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SearchRequest {
    q: String,
    conversation_id: Option<ConversationId>,
    after: Option<String>,
    limit: Option<u16>,
}

#[derive(Serialize)]
struct MessageList {
    messages: Vec<ListedMessage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize)]
struct ReactionList {
    reactions: Vec<ReactionResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReactionResult {
    emoji: String,
    user_id: UserId,
    timestamp: Timestamp,
}

type RpcResult = Result<Box<RawValue>, ReplyError>;

/// Executes a call. `None` if the method is unknown.
pub(super) async fn call(
    chat: &Chat,
    user: &UserId,
    method: &str,
    data: Option<&RawValue>,
) -> Option<RpcResult> {
    Some(match method {
        "messages" => messages(chat, user, data).await,
        "thread" => thread(chat, user, data).await,
        "reactions" => reactions(chat, user, data).await,
        "mentions" => mentions(chat, user, data).await,
        "search" => search(chat, user, data).await,
        _ => return None,
    })
}

async fn messages(chat: &Chat, user: &UserId, data: Option<&RawValue>) -> RpcResult {
    let MessagesRequest { conversation_id, after, before, limit } = parse(data)?;
    let range = match (after, before) {
        (None, None) => MessageRange::Newest,
        (Some(after), None) => MessageRange::After(sequence("after", after)?),
        (None, Some(before)) => MessageRange::Before(sequence("before", before)?),
        (Some(_), Some(_)) => return Err(bad_request("before", "cannot be combined with `after`")),
    };
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    serialize(chat.list_messages(&conversation_id, Some(user), range, limit).await)
}

async fn thread(chat: &Chat, user: &UserId, data: Option<&RawValue>) -> RpcResult {
    let ThreadRequest { conversation_id, message_id, after, limit } = parse(data)?;
    let (after, limit) = (sequence("after", after)?, limit.unwrap_or(DEFAULT_LIMIT));
    serialize(chat.thread(&conversation_id, Some(user), &message_id, after, limit).await)
}

async fn reactions(chat: &Chat, user: &UserId, data: Option<&RawValue>) -> RpcResult {
    let ReactionsRequest { conversation_id, message_id, emoji, after, limit } = parse(data)?;
    let page = page(after.as_deref(), limit)?;
    let found = chat.reactions(&conversation_id, Some(user), &message_id, emoji.as_deref(), &page).await;
    serialize(found.map(|found| found.map(ReactionList::from)))
}

async fn mentions(chat: &Chat, user: &UserId, data: Option<&RawValue>) -> RpcResult {
    let MentionsRequest { unread, after, limit } = parse(data)?;
    let which = if unread { Mentions::Unread } else { Mentions::All };
    let found = chat.mentions(user, which, &page(after.as_deref(), limit)?).await;
    serialize(found.map(|found| Ok(MessageList::from(found))))
}

async fn search(chat: &Chat, user: &UserId, data: Option<&RawValue>) -> RpcResult {
    let SearchRequest { q, conversation_id, after, limit } = parse(data)?;
    let query = SearchQuery::parse(&q).map_err(|refusal| error_of(&refusal))?;
    let page = page(after.as_deref(), limit)?;
    let found = chat.search(user, conversation_id.as_ref(), &query, &page).await;
    serialize(found.map(|found| Ok(MessageList::from(found))))
}

/// The database stores sequences up to 2⁶³ − 1.
fn sequence(field: &str, sequence: u64) -> Result<u64, ReplyError> {
    if i64::try_from(sequence).is_ok() {
        Ok(sequence)
    } else {
        Err(bad_request(field, "not a valid sequence"))
    }
}

fn page(after: Option<&str>, limit: Option<u16>) -> Result<PageRequest, ReplyError> {
    match PageRequest::parse(after, limit) {
        Ok(page) => Ok(page),
        Err(hob_database::Error::InvalidCursor) => Err(bad_request("after", "not the `next` of a page")),
        Err(error) => Err(internal(error.into())),
    }
}

fn bad_request(field: &str, reason: &str) -> ReplyError {
    ReplyError::BAD_REQUEST.with_detail(format_args!("{field}: {reason}"))
}

impl From<Page<ListedMessage>> for MessageList {
    fn from(page: Page<ListedMessage>) -> Self {
        Self { messages: page.rows, next: page.next.map(|next| next.to_string()) }
    }
}

impl From<Page<Reaction>> for ReactionList {
    fn from(page: Page<Reaction>) -> Self {
        let into_result = |Reaction { emoji, user_id, reacted_at }| ReactionResult {
            emoji,
            user_id,
            timestamp: reacted_at,
        };
        let reactions = page.rows.into_iter().map(into_result).collect();
        Self { reactions, next: page.next.map(|next| next.to_string()) }
    }
}
