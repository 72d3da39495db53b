//! `chat_block`: which user has blocked which.

use std::collections::HashSet;

use hob_database::{Query, Read, Transaction, sql};

use crate::Error;
use crate::keys::{ConversationId, UserId};

/// `false` if the user was already blocked.
pub(crate) async fn insert(tx: &Transaction, blocker: &UserId, blocked: &UserId) -> Result<bool, Error> {
    let insert = sql("INSERT INTO chat_block (blocker, blocked, since) VALUES ($1, $2, $3)
                      ON CONFLICT DO NOTHING");
    Ok(tx.execute(insert.bind(blocker).bind(blocked).bind(tx.now())).await? > 0)
}

/// `false` if the user was not blocked.
pub(crate) async fn delete(tx: &Transaction, blocker: &UserId, blocked: &UserId) -> Result<bool, Error> {
    let delete = sql("DELETE FROM chat_block WHERE blocker = $1 AND blocked = $2");
    Ok(tx.execute(delete.bind(blocker).bind(blocked)).await? > 0)
}

/// How many users a user has blocked.
pub(crate) async fn count(tx: &Transaction, blocker: &UserId) -> Result<u64, Error> {
    let count: Query<(u64,)> = sql("SELECT count(*) FROM chat_block WHERE blocker = $1");
    Ok(tx.one(count.bind(blocker)).await?.0)
}

/// The users that a user has blocked, or that have blocked the user.
pub(crate) async fn hidden_from(database: &impl Read, user: &UserId) -> Result<HashSet<UserId>, Error> {
    let list: Query<(UserId,)> = sql("SELECT blocked FROM chat_block WHERE blocker = $1
                                      UNION SELECT blocker FROM chat_block WHERE blocked = $1");
    Ok(database.all(list.bind(user)).await?.into_iter().map(|(user,)| user).collect())
}

/// All blocks by or of these users, as (blocker, blocked).
pub(crate) async fn involving(
    database: &impl Read,
    users: &[&UserId],
) -> Result<HashSet<(UserId, UserId)>, Error> {
    let users: HashSet<&UserId> = users.iter().copied().collect();
    let mut blocks = HashSet::new();
    for user in users {
        let list = sql("SELECT blocker, blocked FROM chat_block WHERE blocker = $1 OR blocked = $1");
        blocks.extend(database.all(list.bind(user)).await?);
    }
    Ok(blocks)
}

/// The users that a user has blocked, by id.
pub(crate) async fn list(database: &impl Read, blocker: &UserId) -> Result<Vec<UserId>, Error> {
    let list: Query<(UserId,)> = sql("SELECT blocked FROM chat_block WHERE blocker = $1 ORDER BY blocked");
    Ok(database.all(list.bind(blocker)).await?.into_iter().map(|(user,)| user).collect())
}

/// Those of these users who have blocked anyone or are blocked by anyone.
pub(crate) async fn with_blocks(
    tx: &Transaction,
    users: &HashSet<&UserId>,
) -> Result<HashSet<UserId>, Error> {
    let mut found = HashSet::new();
    for list in [
        "SELECT DISTINCT blocker FROM chat_block WHERE blocker IN ($1...)",
        "SELECT DISTINCT blocked FROM chat_block WHERE blocked IN ($1...)",
    ] {
        let list: Query<(UserId,)> = sql(list);
        found.extend(tx.all(list.bind_list(users.iter().copied())).await?.into_iter().map(|(user,)| user));
    }
    Ok(found)
}

/// How many other members a conversation has, and how many of them are hidden from the user by a block.
pub(crate) async fn count_hidden_members(
    tx: &Transaction,
    conversation: &ConversationId,
    user: &UserId,
) -> Result<(u64, u64), Error> {
    let others: Query<(u64, u64)> = sql("SELECT count(*), count(b.blocker) FROM chat_member m
         LEFT JOIN chat_block b ON (b.blocker = $2 AND b.blocked = m.user_id)
                                OR (b.blocked = $2 AND b.blocker = m.user_id)
         WHERE m.conversation = $1 AND m.state = 'in' AND m.user_id <> $2");
    Ok(tx.one(others.bind(conversation).bind(user)).await?)
}
