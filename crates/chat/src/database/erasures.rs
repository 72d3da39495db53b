//! `chat_erasure`: the users whose data is being deleted.

use hob_database::{Query, Read, Transaction, sql};

use crate::Error;
use crate::conversation::erasure::{ErasedMessages, Erasure};
use crate::keys::{ConversationId, UserId};

/// Inserts an erasure. A user who has one already keeps the pseudonym.
pub(crate) async fn insert(
    tx: &Transaction,
    user: &UserId,
    pseudonym: &UserId,
    messages: ErasedMessages,
) -> Result<Erasure, Error> {
    let insert =
        sql("INSERT INTO chat_erasure (user_id, pseudonym, messages, requested_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (user_id) DO UPDATE SET messages = excluded.messages
         RETURNING user_id, pseudonym, messages, requested_at");
    Ok(tx.one(insert.bind(user).bind(pseudonym).bind(messages).bind(tx.now())).await?)
}

pub(crate) async fn get(database: &impl Read, user: &UserId) -> Result<Option<Erasure>, Error> {
    let query = sql("SELECT user_id, pseudonym, messages, requested_at FROM chat_erasure WHERE user_id = $1");
    Ok(database.optional(query.bind(user)).await?)
}

/// The oldest one.
pub(crate) async fn first(database: &impl Read) -> Result<Option<Erasure>, Error> {
    let query = sql("SELECT user_id, pseudonym, messages, requested_at FROM chat_erasure
                     ORDER BY requested_at, user_id LIMIT 1");
    Ok(database.optional(query).await?)
}

/// The conversations in which a user is or was a member, after one of them.
pub(crate) async fn conversations_after(
    database: &impl Read,
    user: &UserId,
    after: &str,
    limit: u16,
) -> Result<Vec<ConversationId>, Error> {
    let list: Query<(ConversationId,)> = sql("SELECT conversation FROM chat_member
         WHERE user_id = $1 AND conversation > $2 ORDER BY conversation LIMIT $3");
    let found = database.all(list.bind(user).bind(after).bind(limit)).await?;
    Ok(found.into_iter().map(|(id,)| id).collect())
}

/// Deletes what is left of a user, when the user is not a member of any conversation. Blocks stay, under the pseudonym, so that they hide
/// the same messages as before.
pub(crate) async fn finish(tx: &Transaction, erasure: &Erasure) -> Result<(), Error> {
    let Erasure { user_id, pseudonym, .. } = erasure;
    for rename in [
        "UPDATE chat_block SET blocker = $2 WHERE blocker = $1",
        "UPDATE chat_block SET blocked = $2 WHERE blocked = $1",
        "UPDATE chat_conversation SET created_by = $2 WHERE created_by = $1",
    ] {
        tx.execute(sql::<()>(rename).bind(user_id).bind(pseudonym)).await?;
    }
    for delete in [
        "DELETE FROM chat_reaction WHERE user_id = $1",
        "DELETE FROM chat_mention WHERE user_id = $1",
        "DELETE FROM chat_absence WHERE user_id = $1",
        "DELETE FROM chat_member WHERE user_id = $1",
        "DELETE FROM chat_last_seen WHERE user_id = $1",
        "DELETE FROM chat_reported_presence WHERE user_id = $1",
        "DELETE FROM chat_erasure WHERE user_id = $1",
    ] {
        tx.execute(sql::<()>(delete).bind(user_id)).await?;
    }
    Ok(())
}
