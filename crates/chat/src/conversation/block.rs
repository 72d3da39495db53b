//! Blocks: between two users of whom one has blocked the other nothing passes, in either direction. No
//! messages, no typing, no presence, no receipts, in whatever conversation they share.

use std::collections::HashSet;

use hob_database::{Database, Isolation, Query, Read, Transaction, sql};

use crate::Error;
use crate::conversation::outbox;
use crate::error::{Answer, Halt, Refusal, answer};
use crate::keys::{ConversationId, UserId};

/// The most users that one may block.
pub(crate) const MOST_BLOCKED: u64 = 1_000;

/// What a user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Block,
    Unblock,
}

/// Blocks or unblocks. Whether that was news.
pub(crate) async fn set(database: &Database, blocker: &UserId, blocked: &UserId, wish: Wish) -> Answer<bool> {
    if blocker == blocked {
        return Ok(Err(Refusal::Bad { field: "userId", reason: "nobody can block themselves".to_owned() }));
    }
    let work = |tx: Transaction| async move {
        let changed = match wish {
            Wish::Block => {
                room_for_one_more(&tx, blocker).await?;
                let insert = sql("INSERT INTO chat_block (blocker, blocked, since) VALUES ($1, $2, $3)
                                  ON CONFLICT DO NOTHING");
                tx.execute(insert.bind(blocker).bind(blocked).bind(tx.now())).await?
            }
            Wish::Unblock => {
                let delete = sql("DELETE FROM chat_block WHERE blocker = $1 AND blocked = $2");
                tx.execute(delete.bind(blocker).bind(blocked)).await?
            }
        };
        if changed > 0 {
            recount_shared(&tx, blocker, blocked).await?;
        }
        Ok(changed > 0)
    };
    answer(database.write_with(Isolation::Committed, work).await)
}

async fn room_for_one_more(tx: &Transaction, blocker: &UserId) -> Result<(), Halt> {
    let count: Query<(u64,)> = sql("SELECT count(*) FROM chat_block WHERE blocker = $1");
    let (count,) = tx.one(count.bind(blocker)).await?;
    if count >= MOST_BLOCKED {
        return Err(Refusal::TooMany { what: "blocked users", most: MOST_BLOCKED }.into());
    }
    Ok(())
}

/// What the two have unread changes with the block, and so do their versions: wherever one of them is, and the other
/// is or was, and may have left messages.
async fn recount_shared(tx: &Transaction, one: &UserId, other: &UserId) -> Result<(), Halt> {
    let shared: Query<(ConversationId,)> = sql("UPDATE chat_member SET version = version + 1
         WHERE user_id IN ($1, $2) AND state = 'in' AND conversation IN (
             SELECT a.conversation FROM chat_member a JOIN chat_member b ON b.conversation = a.conversation
             WHERE a.user_id = $1 AND b.user_id = $2)
         RETURNING conversation");
    let shared = tx.all(shared.bind(one).bind(other)).await?;
    let shared: HashSet<ConversationId> = shared.into_iter().map(|(conversation,)| conversation).collect();
    for conversation in shared {
        outbox::tell_reader(tx, &conversation, one)?;
        outbox::tell_reader(tx, &conversation, other)?;
    }
    Ok(())
}

/// All whom a user neither sees nor is seen by.
pub(crate) async fn hidden_from(database: &impl Read, user: &UserId) -> Result<HashSet<UserId>, Error> {
    let list: Query<(UserId,)> = sql("SELECT blocked FROM chat_block WHERE blocker = $1
                                      UNION SELECT blocker FROM chat_block WHERE blocked = $1");
    Ok(database.all(list.bind(user)).await?.into_iter().map(|(user,)| user).collect())
}

/// Who has blocked whom, where it concerns any of these users.
pub(crate) async fn between(
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

/// Those whom a user has blocked.
pub(crate) async fn blocked_by(database: &impl Read, user: &UserId) -> Result<Vec<UserId>, Error> {
    let list: Query<(UserId,)> = sql("SELECT blocked FROM chat_block WHERE blocker = $1 ORDER BY blocked");
    Ok(database.all(list.bind(user)).await?.into_iter().map(|(user,)| user).collect())
}

/// Whether everybody else in the conversation is hidden from the user, so that nobody would see what is sent.
pub(crate) async fn alone_with_blocked(
    tx: &Transaction,
    conversation: &ConversationId,
    user: &UserId,
) -> Result<bool, Error> {
    let hidden: Query<(i64,)> = sql("SELECT CAST(1 AS BIGINT) FROM chat_block
                                     WHERE blocker = $1 OR blocked = $1 LIMIT 1");
    if tx.optional(hidden.bind(user)).await?.is_none() {
        return Ok(false);
    }
    let others: Query<(u64, u64)> = sql("SELECT count(*), count(b.blocker) FROM chat_member m
         LEFT JOIN chat_block b ON (b.blocker = $2 AND b.blocked = m.user_id)
                                OR (b.blocked = $2 AND b.blocker = m.user_id)
         WHERE m.conversation = $1 AND m.state = 'in' AND m.user_id <> $2");
    let (others, hidden) = tx.one(others.bind(conversation).bind(user)).await?;
    Ok(others > 0 && hidden >= others)
}
