//! `chat_reaction`: which user has reacted to which message.

use hob_database::{Keyset, Page, PageRequest, Query, Read, Transaction, UnixMs, ValueKind, from_row, sql};

use crate::Error;
use crate::conversation::message::Message;
use crate::conversation::reaction::Reaction;
use crate::keys::{ConversationId, UserId};

const BY_EMOJI: Keyset = Keyset::ascending(&[("r.emoji", ValueKind::Text), ("r.user_id", ValueKind::Text)]);

/// How many users have one reaction to one message.
#[derive(Debug)]
pub(crate) struct CountedReaction {
    pub(crate) sequence: u64,
    pub(crate) emoji: String,
    pub(crate) count: u64,
    /// 1 if the viewer is one of them.
    pub(crate) own: u64,
}

from_row!(CountedReaction { sequence, emoji, count, own });

/// `false` if the user already has this reaction.
pub(crate) async fn insert(
    tx: &Transaction,
    message: &Message,
    user: &UserId,
    emoji: &str,
) -> Result<bool, Error> {
    let insert = sql("INSERT INTO chat_reaction (conversation, sequence, emoji, user_id, reacted_at)
                      VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING");
    let insert = insert.bind(&message.conversation_id).bind(message.sequence).bind(emoji).bind(user);
    Ok(tx.execute(insert.bind(tx.now())).await? > 0)
}

/// `false` if the user does not have this reaction.
pub(crate) async fn delete(
    tx: &Transaction,
    message: &Message,
    user: &UserId,
    emoji: &str,
) -> Result<bool, Error> {
    let delete = sql("DELETE FROM chat_reaction
                      WHERE conversation = $1 AND sequence = $2 AND emoji = $3 AND user_id = $4");
    let delete = delete.bind(&message.conversation_id).bind(message.sequence).bind(emoji).bind(user);
    Ok(tx.execute(delete).await? > 0)
}

/// Deletes all reactions to these messages.
pub(crate) async fn delete_all(
    tx: &Transaction,
    conversation: &ConversationId,
    sequences: &[u64],
) -> Result<(), Error> {
    let delete = sql("DELETE FROM chat_reaction WHERE conversation = $1 AND sequence IN ($2...)");
    Ok(tx.execute(delete.bind(conversation).bind_list(sequences.iter().copied())).await.map(drop)?)
}

/// How many reactions a user has to a message.
pub(crate) async fn count_of_user(tx: &Transaction, message: &Message, user: &UserId) -> Result<u64, Error> {
    let count: Query<(u64,)> = sql("SELECT count(*) FROM chat_reaction
                                    WHERE user_id = $1 AND conversation = $2 AND sequence = $3");
    Ok(tx.one(count.bind(user).bind(&message.conversation_id).bind(message.sequence)).await?.0)
}

/// Whether no other user has this reaction to a message.
pub(crate) async fn is_first(
    tx: &Transaction,
    message: &Message,
    user: &UserId,
    emoji: &str,
) -> Result<bool, Error> {
    let other: Query<(u64,)> = sql("SELECT count(*) FROM (SELECT 1 FROM chat_reaction
         WHERE conversation = $1 AND sequence = $2 AND emoji = $3 AND user_id <> $4 LIMIT 1) AS other");
    let other = other.bind(&message.conversation_id).bind(message.sequence).bind(emoji).bind(user);
    Ok(tx.one(other).await?.0 == 0)
}

/// How many different reactions a message has.
pub(crate) async fn count_kinds(tx: &Transaction, message: &Message) -> Result<u64, Error> {
    let count: Query<(u64,)> = sql("SELECT count(DISTINCT emoji) FROM chat_reaction
                                    WHERE conversation = $1 AND sequence = $2");
    Ok(tx.one(count.bind(&message.conversation_id).bind(message.sequence)).await?.0)
}

/// The reactions to these messages without those of users that are hidden from the viewer, in the order in which they were
/// first used.
pub(crate) async fn counts(
    database: &impl Read,
    conversation: &ConversationId,
    viewer: Option<&UserId>,
    sequences: &[u64],
) -> Result<Vec<CountedReaction>, Error> {
    let counts = sql("SELECT r.sequence, r.emoji, count(*) AS count,
             count(CASE WHEN r.user_id = $2 THEN 1 END) AS own
         FROM chat_reaction r WHERE r.conversation = $1 AND NOT EXISTS (
             SELECT 1 FROM chat_block b WHERE (b.blocker = $2 AND b.blocked = r.user_id)
                 OR (b.blocker = r.user_id AND b.blocked = $2))
             AND r.sequence IN ($3...)
         GROUP BY r.sequence, r.emoji ORDER BY r.sequence, min(r.reacted_at), r.emoji");
    let counts = counts.bind(conversation).bind(viewer).bind_list(sequences.iter().copied());
    Ok(database.all(counts).await?)
}

/// A page of the reactions to a message without those of users that are hidden from the viewer, by emoji and user.
pub(crate) async fn list(
    database: &impl Read,
    message: &Message,
    viewer: Option<&UserId>,
    emoji: Option<&str>,
    request: &PageRequest,
) -> Result<Page<Reaction>, Error> {
    let list = sql("SELECT r.emoji, r.user_id, r.reacted_at FROM chat_reaction r
         WHERE r.conversation = $1 AND r.sequence = $2 AND ($4 IS NULL OR r.emoji = $4) AND NOT EXISTS (
             SELECT 1 FROM chat_block b WHERE (b.blocker = $3 AND b.blocked = r.user_id)
                 OR (b.blocker = r.user_id AND b.blocked = $3))");
    let list = list.bind(&message.conversation_id).bind(message.sequence).bind(viewer).bind(emoji);
    Ok(database.page(list, &BY_EMOJI, request).await?)
}

/// A reaction of a user: the conversation, the sequence of the message, and the emoji.
pub(crate) async fn first_of_user(
    tx: &Transaction,
    user: &UserId,
) -> Result<Option<(ConversationId, u64, String)>, Error> {
    let first = sql("SELECT conversation, sequence, emoji FROM chat_reaction WHERE user_id = $1
                     ORDER BY conversation, sequence, emoji LIMIT 1");
    Ok(tx.optional(first.bind(user)).await?)
}

/// The reactions of a user in a conversation after a message: the sequence of the message, the emoji, and the time.
pub(crate) async fn of_user_after(
    database: &impl Read,
    conversation: &ConversationId,
    user: &UserId,
    after: u64,
    limit: u16,
) -> Result<Vec<(u64, String, UnixMs)>, Error> {
    let list = sql("SELECT sequence, emoji, reacted_at FROM chat_reaction
         WHERE user_id = $1 AND conversation = $2 AND sequence > $3 ORDER BY sequence, emoji LIMIT $4");
    Ok(database.all(list.bind(user).bind(conversation).bind(after).bind(limit)).await?)
}
