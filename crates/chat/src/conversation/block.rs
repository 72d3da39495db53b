//! Blocks: between two users of whom one has blocked the other nothing passes, in either direction. No
//! messages, no typing, no presence, no receipts, in whatever conversation they share.

use std::collections::HashSet;

use hob_database::{Database, Isolation, Transaction};

use crate::Error;
use crate::conversation::outbox;
use crate::database::{blocks, members};
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
                blocks::insert(&tx, blocker, blocked).await?
            }
            Wish::Unblock => blocks::delete(&tx, blocker, blocked).await?,
        };
        if changed {
            recount_shared(&tx, blocker, blocked).await?;
        }
        Ok(changed)
    };
    answer(database.write_with(Isolation::Committed, work).await)
}

async fn room_for_one_more(tx: &Transaction, blocker: &UserId) -> Result<(), Halt> {
    if blocks::count(tx, blocker).await? >= MOST_BLOCKED {
        return Err(Refusal::TooMany { what: "blocked users", most: MOST_BLOCKED }.into());
    }
    Ok(())
}

/// What the two have unread changes with the block, and so do their versions: wherever one of them is, and the other
/// is or was, and may have left messages.
async fn recount_shared(tx: &Transaction, one: &UserId, other: &UserId) -> Result<(), Halt> {
    let shared = members::raise_shared_versions(tx, one, other).await?;
    let shared: HashSet<ConversationId> = shared.into_iter().collect();
    for conversation in shared {
        outbox::tell_reader(tx, &conversation, one)?;
        outbox::tell_reader(tx, &conversation, other)?;
    }
    Ok(())
}

/// Whether everybody else in the conversation is hidden from the user, so that nobody would see what is sent.
pub(crate) async fn alone_with_blocked(
    tx: &Transaction,
    conversation: &ConversationId,
    user: &UserId,
) -> Result<bool, Error> {
    if !blocks::exist_for(tx, user).await? {
        return Ok(false);
    }
    let (others, hidden) = blocks::count_hidden_members(tx, conversation, user).await?;
    Ok(others > 0 && hidden >= others)
}
