//! `chat_block`: which user has blocked which.

use std::collections::{HashMap, HashSet};

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

/// Pairs of users of which one has blocked the other.
#[derive(Debug, Default)]
pub(crate) struct BlockedPairs(HashMap<UserId, HashSet<UserId>>);

impl BlockedPairs {
    /// Whether one of two users has blocked the other.
    pub(crate) fn contains(&self, user: &UserId, other: &UserId) -> bool {
        let has_blocked = |blocker, blocked| self.0.get(blocker).is_some_and(|users| users.contains(blocked));
        has_blocked(user, other) || has_blocked(other, user)
    }
}

impl Extend<(UserId, UserId)> for BlockedPairs {
    fn extend<T: IntoIterator<Item = (UserId, UserId)>>(&mut self, blocks: T) {
        for (blocker, blocked) in blocks {
            self.0.entry(blocker).or_default().insert(blocked);
        }
    }
}

/// The blocks by or of these users.
pub(crate) async fn involving<'a>(
    database: &impl Read,
    users: impl IntoIterator<Item = &'a UserId>,
) -> Result<BlockedPairs, Error> {
    let users: HashSet<&UserId> = users.into_iter().collect();
    let mut blocked = BlockedPairs::default();
    for list in [
        "SELECT blocker, blocked FROM chat_block WHERE blocker IN ($1...)",
        "SELECT blocker, blocked FROM chat_block WHERE blocked IN ($1...)",
    ] {
        let list: Query<(UserId, UserId)> = sql(list);
        blocked.extend(database.all(list.bind_list(users.iter().copied())).await?);
    }
    Ok(blocked)
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
