//! `chat_member`: the members of a conversation, including former members, and how far each has read.

use std::collections::HashSet;

use hob_database::{Query, Read, Transaction, sql};

use crate::Error;
use crate::conversation::block::BlockAction;
use crate::conversation::member::{Member, MemberStatus, Membership, Receipt, ReceiptKind};
use crate::keys::{ConversationId, UserId};

/// The membership of a user. `None` if the conversation does not exist or the user was never a member.
pub(crate) async fn membership(
    database: &impl Read,
    conversation: &ConversationId,
    user: &UserId,
) -> Result<Option<Membership>, Error> {
    let query = sql(
        "SELECT m.state, m.read_sequence, c.sequence, m.visibility, m.returned_sequence FROM chat_member m
                     JOIN chat_conversation c ON c.id = m.conversation
                     WHERE m.conversation = $1 AND m.user_id = $2",
    );
    Ok(database.optional(query.bind(conversation).bind(user)).await?)
}

/// The members of a conversation, each with the version that their unread count depends on.
pub(crate) async fn versions(
    database: &impl Read,
    conversation: &ConversationId,
) -> Result<Vec<(UserId, u64)>, Error> {
    let list = sql("SELECT user_id, version FROM chat_member WHERE conversation = $1 AND state = 'in'");
    Ok(database.all(list.bind(conversation)).await?)
}

/// The members of a conversation, by id.
pub(crate) async fn users(database: &impl Read, conversation: &ConversationId) -> Result<Vec<UserId>, Error> {
    let list: Query<(UserId,)> =
        sql("SELECT user_id FROM chat_member WHERE conversation = $1 AND state = 'in' ORDER BY user_id");
    Ok(ids(database.all(list.bind(conversation)).await?))
}

/// Whether a member of a conversation has blocked anyone or is blocked by anyone. `None` if the user is not a member.
pub(crate) async fn has_blocks(
    tx: &Transaction,
    conversation: &ConversationId,
    user: &UserId,
) -> Result<Option<bool>, Error> {
    let member: Query<(bool,)> = sql("SELECT EXISTS (
             SELECT 1 FROM chat_block WHERE blocker = $2 OR blocked = $2)
         FROM chat_member WHERE conversation = $1 AND user_id = $2 AND state = 'in'");
    Ok(tx.optional(member.bind(conversation).bind(user)).await?.map(|(has_blocks,)| has_blocks))
}

/// Those of these users who are members of a conversation.
pub(crate) async fn among(
    tx: &Transaction,
    conversation: &ConversationId,
    users: &HashSet<&UserId>,
) -> Result<HashSet<UserId>, Error> {
    let list: Query<(UserId,)> = sql("SELECT user_id FROM chat_member
         WHERE conversation = $1 AND state = 'in' AND user_id IN ($2...)");
    let found = tx.all(list.bind(conversation).bind_list(users.iter().copied())).await?;
    Ok(found.into_iter().map(|(user,)| user).collect())
}

/// A page of the members of a conversation, by id, after a user.
pub(crate) async fn list(
    database: &impl Read,
    conversation: &ConversationId,
    after: &str,
    limit: u16,
) -> Result<Vec<Member>, Error> {
    let list = sql("SELECT user_id, joined_at, read_sequence, delivered_sequence FROM chat_member
                    WHERE conversation = $1 AND state = 'in' AND user_id > $2 ORDER BY user_id LIMIT $3");
    Ok(database.all(list.bind(conversation).bind(after).bind(limit)).await?)
}

/// The users who share a conversation with a user.
pub(crate) async fn contacts(database: &impl Read, user: &UserId, limit: u16) -> Result<Vec<UserId>, Error> {
    let list: Query<(UserId,)> = sql("SELECT DISTINCT other.user_id FROM chat_member mine
         JOIN chat_member other ON other.conversation = mine.conversation AND other.state = 'in'
         WHERE mine.user_id = $1 AND mine.state = 'in' AND other.user_id <> $1
         ORDER BY other.user_id LIMIT $2");
    Ok(ids(database.all(list.bind(user).bind(limit)).await?))
}

/// How many rows a conversation has: members, and users who left.
pub(crate) async fn count(tx: &Transaction, conversation: &ConversationId) -> Result<u64, Error> {
    let count: Query<(u64,)> = sql("SELECT count(*) FROM chat_member WHERE conversation = $1");
    Ok(tx.one(count.bind(conversation)).await?.0)
}

/// Inserts the first members of a conversation, who have read everything up to `sequence`.
pub(crate) async fn insert_first(
    tx: &Transaction,
    conversation: &ConversationId,
    users: &[&UserId],
    sequence: u64,
) -> Result<(), Error> {
    let rows = users
        .iter()
        .map(|user| (conversation, *user, MemberStatus::Joined, tx.now(), sequence, sequence, 1_u64));
    let head = "INSERT INTO chat_member (conversation, user_id, state, joined_at, read_sequence, delivered_sequence, version)";
    Ok(tx.insert_all(head, rows.collect::<Vec<_>>(), "").await.map(drop)?)
}

/// Inserts a member, or lets a user who left join again. Everything up to `sequence` counts as read, and the absence ends.
pub(crate) async fn join(
    tx: &Transaction,
    conversation: &ConversationId,
    user: &UserId,
    sequence: u64,
) -> Result<(), Error> {
    let join = sql("INSERT INTO chat_member
             (conversation, user_id, state, joined_at, read_sequence, delivered_sequence, version)
         VALUES ($1, $2, 'in', $3, $4, $4, 1)
         ON CONFLICT (conversation, user_id) DO UPDATE SET state = 'in', joined_at = $3,
             read_sequence = $4, delivered_sequence = $4, version = chat_member.version + 1,
             visibility = chat_member.visibility + 1, returned_sequence = $4");
    tx.execute(join.bind(conversation).bind(user).bind(tx.now()).bind(sequence)).await?;
    let end = sql("UPDATE chat_absence SET returned_sequence = $3
                   WHERE conversation = $1 AND user_id = $2 AND returned_sequence IS NULL");
    Ok(tx.execute(end.bind(conversation).bind(user).bind(sequence)).await.map(drop)?)
}

/// Ends a membership with an event. `false` if the user is not a member.
pub(crate) async fn leave(
    tx: &Transaction,
    conversation: &ConversationId,
    user: &UserId,
    sequence: u64,
) -> Result<bool, Error> {
    let leave = sql("UPDATE chat_member SET state = 'out', version = version + 1
                     WHERE conversation = $1 AND user_id = $2 AND state = 'in'");
    if tx.execute(leave.bind(conversation).bind(user)).await? == 0 {
        return Ok(false);
    }
    let begin = sql("INSERT INTO chat_absence (conversation, user_id, left_sequence) VALUES ($1, $2, $3)");
    tx.execute(begin.bind(conversation).bind(user).bind(sequence)).await?;
    Ok(true)
}

/// Moves a member's pointers forward. `false` if they were already there. Everything that was read also counts as
/// delivered.
pub(crate) async fn advance(
    tx: &Transaction,
    conversation: &ConversationId,
    user: &UserId,
    up_to: u64,
    kind: ReceiptKind,
) -> Result<bool, Error> {
    let advance = match kind {
        ReceiptKind::Read => sql("UPDATE chat_member SET read_sequence = $3, version = version + 1,
                 delivered_sequence = CASE WHEN delivered_sequence < $3 THEN $3 ELSE delivered_sequence END
             WHERE conversation = $1 AND user_id = $2 AND state = 'in' AND read_sequence < $3"),
        ReceiptKind::Delivered => sql("UPDATE chat_member SET delivered_sequence = $3
             WHERE conversation = $1 AND user_id = $2 AND state = 'in' AND delivered_sequence < $3"),
    };
    Ok(tx.execute(advance.bind(conversation).bind(user).bind(up_to)).await? > 0)
}

pub(crate) async fn receipt(
    tx: &Transaction,
    conversation: &ConversationId,
    user: &UserId,
) -> Result<Receipt, Error> {
    let receipt = sql("SELECT read_sequence, delivered_sequence FROM chat_member
                       WHERE conversation = $1 AND user_id = $2");
    Ok(tx.one(receipt.bind(conversation).bind(user)).await?)
}

/// Raises the versions of two users in every conversation in which one of them is a member and the other is or was one. If
/// they are unblocked, hidden events become visible. Returns those conversations, some of them twice.
pub(crate) async fn raise_shared_versions(
    tx: &Transaction,
    one: &UserId,
    other: &UserId,
    action: BlockAction,
) -> Result<Vec<ConversationId>, Error> {
    let shared: Query<(ConversationId,)> =
        sql("UPDATE chat_member SET version = version + 1, visibility = visibility + $3
         WHERE user_id IN ($1, $2) AND state = 'in' AND conversation IN (
             SELECT a.conversation FROM chat_member a JOIN chat_member b ON b.conversation = a.conversation
             WHERE a.user_id = $1 AND b.user_id = $2)
         RETURNING conversation");
    let revealed = match action {
        BlockAction::Block => 0_u64,
        BlockAction::Unblock => 1,
    };
    Ok(tx.all(shared.bind(one).bind(other).bind(revealed)).await?.into_iter().map(|(id,)| id).collect())
}

/// A page of all users who are or were members of a conversation, by id, after a user.
pub(crate) async fn all_users(database: &impl Read, after: &str, limit: u16) -> Result<Vec<UserId>, Error> {
    let users: Query<(UserId,)> = sql("SELECT DISTINCT user_id FROM chat_member WHERE user_id > $1
                                       ORDER BY user_id LIMIT $2");
    Ok(ids(database.all(users.bind(after).bind(limit)).await?))
}

/// The first members of any conversation, by id.
pub(crate) async fn some_users(database: &impl Read, limit: u16) -> Result<Vec<UserId>, Error> {
    let users: Query<(UserId,)> =
        sql("SELECT DISTINCT user_id FROM chat_member WHERE state = 'in' ORDER BY user_id LIMIT $1");
    Ok(ids(database.all(users.bind(limit)).await?))
}

fn ids(rows: Vec<(UserId,)>) -> Vec<UserId> {
    rows.into_iter().map(|(user,)| user).collect()
}
