//! `chat_conversation`: one row for each conversation.

use hob_database::{Keyset, Page, PageRequest, Query, Read, Transaction, UnixMs, ValueKind, sql};

use crate::Error;
use crate::conversation::{Conversation, ConversationSummary, NewConversation};
use crate::keys::{ConversationId, UserId};

const LATEST_FIRST: Keyset = Keyset::descending(&[("changed_at", ValueKind::Int), ("id", ValueKind::Text)]);

pub(crate) async fn get(database: &impl Read, id: &ConversationId) -> Result<Option<Conversation>, Error> {
    let query = sql("SELECT id, title, created_by, created_at, sequence, newest, changed_at, message_ttl
                     FROM chat_conversation WHERE id = $1");
    Ok(database.optional(query.bind(id)).await?)
}

/// Inserts a conversation without events. `false` if the id is taken.
pub(crate) async fn insert(tx: &Transaction, new: &NewConversation) -> Result<bool, Error> {
    let insert = sql("INSERT INTO chat_conversation
             (id, title, created_by, created_at, sequence, newest, changed_at)
         VALUES ($1, $2, $3, $4, 0, 0, $4) ON CONFLICT DO NOTHING");
    let insert = insert.bind(&new.id).bind(&new.title).bind(&new.created_by).bind(tx.now());
    Ok(tx.execute(insert).await? > 0)
}

pub(crate) async fn set_sequence(tx: &Transaction, id: &ConversationId, sequence: u64) -> Result<(), Error> {
    let update = sql("UPDATE chat_conversation SET sequence = $2 WHERE id = $1");
    Ok(tx.execute(update.bind(id).bind(sequence)).await.map(drop)?)
}

/// Reserves the next sequences and message numbers of a conversation, and locks it. Returns the last ones; `None` if the
/// conversation does not exist.
pub(crate) async fn advance(
    tx: &Transaction,
    id: &ConversationId,
    events: u64,
    messages: u64,
) -> Result<Option<(u64, u64)>, Error> {
    let update: Query<(u64, u64)> = sql("UPDATE chat_conversation
             SET sequence = sequence + $2, newest = newest + $3, changed_at = $4,
                 expires_at = CASE WHEN $3 > 0 AND expires_at IS NULL THEN $4 + message_ttl * 1000 ELSE expires_at END
             WHERE id = $1 RETURNING sequence, newest");
    Ok(tx.optional(update.bind(id).bind(events).bind(messages).bind(tx.now())).await?)
}

/// Gives back the last sequences and message numbers that this transaction has reserved.
pub(crate) async fn give_back(tx: &Transaction, id: &ConversationId, messages: u64) -> Result<(), Error> {
    let update =
        sql("UPDATE chat_conversation SET sequence = sequence - $2, newest = newest - $2 WHERE id = $1");
    Ok(tx.execute(update.bind(id).bind(messages)).await.map(drop)?)
}

pub(crate) async fn set_title(tx: &Transaction, id: &ConversationId, title: &str) -> Result<(), Error> {
    let update = sql("UPDATE chat_conversation SET title = $2 WHERE id = $1");
    Ok(tx.execute(update.bind(id).bind(title)).await.map(drop)?)
}

/// The conversations of a user, most recently changed first.
pub(crate) async fn list_of_user(
    database: &impl Read,
    user: &UserId,
    request: &PageRequest,
) -> Result<Page<ConversationSummary>, Error> {
    let list = sql("SELECT id, title, sequence, changed_at FROM chat_conversation
                    WHERE id IN (SELECT conversation FROM chat_member WHERE user_id = $1 AND state = 'in')");
    Ok(database.page(list.bind(user), &LATEST_FIRST, request).await?)
}

/// All conversations, most recently changed first.
pub(crate) async fn list(database: &impl Read, request: &PageRequest) -> Result<Page<Conversation>, Error> {
    let list = sql("SELECT id, title, created_by, created_at, sequence, newest, changed_at, message_ttl
                    FROM chat_conversation WHERE TRUE");
    Ok(database.page(list, &LATEST_FIRST, request).await?)
}

/// Sets after how many seconds messages are deleted.
pub(crate) async fn set_message_ttl(
    tx: &Transaction,
    id: &ConversationId,
    ttl_s: Option<u64>,
) -> Result<(), Error> {
    let update = sql("UPDATE chat_conversation SET message_ttl = $2 WHERE id = $1");
    Ok(tx.execute(update.bind(id).bind(ttl_s)).await.map(drop)?)
}

/// Locks a conversation. Returns its time to live in seconds, if it has one, and the last message that has expired.
pub(crate) async fn lock_expiry(
    tx: &Transaction,
    id: &ConversationId,
) -> Result<Option<(Option<u64>, u64)>, Error> {
    let lock: Query<(Option<u64>, u64)> =
        sql("UPDATE chat_conversation SET expired_sequence = expired_sequence
             WHERE id = $1 RETURNING message_ttl, expired_sequence");
    Ok(tx.optional(lock.bind(id)).await?)
}

/// Sets when the next message of a conversation expires, and the last one that has expired.
pub(crate) async fn set_expiry(
    tx: &Transaction,
    id: &ConversationId,
    expires_at: Option<UnixMs>,
    expired_sequence: u64,
) -> Result<(), Error> {
    let update = sql("UPDATE chat_conversation SET expires_at = $2, expired_sequence = $3 WHERE id = $1");
    Ok(tx.execute(update.bind(id).bind(expires_at).bind(expired_sequence)).await.map(drop)?)
}

/// Some conversations with messages that have expired.
pub(crate) async fn with_expired(
    database: &impl Read,
    now: UnixMs,
    limit: u16,
) -> Result<Vec<ConversationId>, Error> {
    let list: Query<(ConversationId,)> =
        sql("SELECT id FROM chat_conversation WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2");
    Ok(database.all(list.bind(now).bind(limit)).await?.into_iter().map(|(id,)| id).collect())
}
