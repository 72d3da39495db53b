//! Blocks. If one of two users has blocked the other, nothing is delivered between them, in either direction: no
//! messages, typing, presence or receipts, in any conversation.

use std::collections::HashSet;

use hob_database::{Database, Isolation, Transaction};

use crate::Error;
use crate::conversation::outbox;
use crate::database::{blocks, members};
use crate::error::{Answer, Refusal, Rollback, into_answer};
use crate::keys::{ConversationId, UserId};

/// The most users that one user can block.
pub(crate) const MAX_BLOCKED: u64 = 1_000;

/// Whether to block or unblock a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockAction {
    Block,
    Unblock,
}

/// Blocks or unblocks a user. `false` if nothing changed.
pub(crate) async fn set(
    database: &Database,
    blocker: &UserId,
    blocked: &UserId,
    action: BlockAction,
) -> Answer<bool> {
    if blocker == blocked {
        return Ok(Err(Refusal::InvalidField {
            field: "user_id",
            reason: "you cannot block yourself".to_owned(),
        }));
    }
    let work = |tx: Transaction| async move {
        let changed = match action {
            BlockAction::Block => {
                check_block_limit(&tx, blocker).await?;
                blocks::insert(&tx, blocker, blocked).await?
            }
            BlockAction::Unblock => blocks::delete(&tx, blocker, blocked).await?,
        };
        if changed {
            recount_shared(&tx, blocker, blocked, action).await?;
        }
        Ok(changed)
    };
    into_answer(database.write_with(Isolation::ReadCommitted, work).await)
}

async fn check_block_limit(tx: &Transaction, blocker: &UserId) -> Result<(), Rollback> {
    if blocks::count(tx, blocker).await? >= MAX_BLOCKED {
        return Err(Refusal::LimitExceeded { what: "blocked users", max: MAX_BLOCKED }.into());
    }
    Ok(())
}

/// A block changes the unread counts of the two users, and therefore their versions, in every conversation in which one
/// of them is a member and the other is or was a member.
async fn recount_shared(
    tx: &Transaction,
    one: &UserId,
    other: &UserId,
    action: BlockAction,
) -> Result<(), Rollback> {
    let shared = members::raise_shared_versions(tx, one, other, action).await?;
    let shared: HashSet<ConversationId> = shared.into_iter().collect();
    for conversation in shared {
        outbox::emit_recount(tx, &conversation, one)?;
        outbox::emit_recount(tx, &conversation, other)?;
    }
    Ok(())
}

/// Whether every other member of the conversation is hidden from the user, so that no one would receive a message. Most users
/// have no blocks; callers check that first.
pub(crate) async fn all_others_hidden(
    tx: &Transaction,
    conversation: &ConversationId,
    user: &UserId,
) -> Result<bool, Error> {
    let (others, hidden) = blocks::count_hidden_members(tx, conversation, user).await?;
    Ok(others > 0 && hidden >= others)
}
