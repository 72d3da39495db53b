//! Unread counts: messages of other members after the read pointer that are not deleted, without those of blocked users. And how
//! many of them mention the member.

use hob_database::{Read, sql};

use crate::Error;
use crate::keys::{ConversationId, UserId};
use crate::store::unread::UnreadRow;

macro_rules! count_where {
    ($condition:literal) => {
        sql(concat!(
            "SELECT m.user_id, m.conversation AS conversation_id, c.sequence + m.version AS stamp, c.sequence,
                 CASE WHEN m.state = 'in' THEN (
                     SELECT count(*) FROM chat_message x
                     WHERE x.conversation = m.conversation AND x.sequence > m.read_sequence
                         AND x.sender <> m.user_id AND x.deleted = FALSE
                         AND NOT EXISTS (SELECT 1 FROM chat_block b
                             WHERE (b.blocker = m.user_id AND b.blocked = x.sender)
                                OR (b.blocker = x.sender AND b.blocked = m.user_id)))
                 ELSE 0 END AS unread,
                 CASE WHEN m.state = 'in' THEN (
                     SELECT count(*) FROM chat_mention n
                     JOIN chat_message x ON x.conversation = n.conversation AND x.sequence = n.sequence
                     WHERE n.user_id = m.user_id AND n.conversation = m.conversation
                         AND n.sequence > m.read_sequence
                         AND NOT EXISTS (SELECT 1 FROM chat_block b
                             WHERE (b.blocker = m.user_id AND b.blocked = x.sender)
                                OR (b.blocker = x.sender AND b.blocked = m.user_id)))
                 ELSE 0 END AS mentions
             FROM chat_member m JOIN chat_conversation c ON c.id = m.conversation
             WHERE ",
            $condition
        ))
    };
}

/// The counts of all members of a conversation. Those of users who left are 0.
pub(crate) async fn in_conversation(
    database: &impl Read,
    conversation: &ConversationId,
) -> Result<Vec<UnreadRow>, Error> {
    Ok(database.all(count_where!("m.conversation = $1").bind(conversation)).await?)
}

/// The count of one user in one conversation.
pub(crate) async fn of_member(
    database: &impl Read,
    conversation: &ConversationId,
    user: &UserId,
) -> Result<Option<UnreadRow>, Error> {
    let query = count_where!("m.conversation = $1 AND m.user_id = $2");
    Ok(database.optional(query.bind(conversation).bind(user)).await?)
}

/// All counts of a user.
pub(crate) async fn of_user(database: &impl Read, user: &UserId) -> Result<Vec<UnreadRow>, Error> {
    Ok(database.all(count_where!("m.user_id = $1 ORDER BY m.conversation").bind(user)).await?)
}
