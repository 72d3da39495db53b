//! `chat_message`: the messages of a conversation.

use hob_database::{Query, Read, Transaction, sql};

use crate::Error;
use crate::conversation::message::{Message, MessageRange};
use crate::keys::{ConversationId, UserId};

macro_rules! select {
    ($rest:expr) => {
        sql(concat!(
            "SELECT id, content, sender AS sender_id, sent_at AS timestamp, conversation AS conversation_id,
             number, sequence, client_id, edited_at, deleted FROM chat_message ",
            $rest
        ))
    };
}

/// Inserts messages. `false` if one of them was not inserted, because another message has its client id.
pub(crate) async fn insert_all(tx: &Transaction, messages: &[&Message]) -> Result<bool, Error> {
    let row = |message: &&Message| {
        let Message {
            id, content, sender_id, timestamp, conversation_id, number, sequence, client_id, ..
        } = (*message).clone();
        (conversation_id, sequence, number, id, sender_id, client_id, content, timestamp, false)
    };
    let head = "INSERT INTO chat_message
                    (conversation, sequence, number, id, sender, client_id, content, sent_at, deleted)";
    let rows: Vec<_> = messages.iter().map(row).collect();
    Ok(tx.insert_all(head, rows, "ON CONFLICT DO NOTHING").await? == messages.len() as u64)
}

pub(crate) async fn by_client_id(
    database: &impl Read,
    conversation: &ConversationId,
    sender: &UserId,
    client_id: &str,
) -> Result<Option<Message>, Error> {
    let query = select!("WHERE conversation = $1 AND sender = $2 AND client_id = $3");
    Ok(database.optional(query.bind(conversation).bind(sender).bind(client_id)).await?)
}

pub(crate) async fn get(database: &impl Read, id: &str) -> Result<Option<Message>, Error> {
    Ok(database.optional(select!("WHERE id = $1").bind(id)).await?)
}

pub(crate) async fn set_content(tx: &Transaction, id: &str, content: &str) -> Result<(), Error> {
    let update = sql("UPDATE chat_message SET content = $2, edited_at = $3 WHERE id = $1");
    Ok(tx.execute(update.bind(id).bind(content).bind(tx.now())).await.map(drop)?)
}

/// Marks a message as deleted and erases its content.
pub(crate) async fn erase(tx: &Transaction, id: &str) -> Result<(), Error> {
    let update = sql("UPDATE chat_message SET content = '', deleted = TRUE WHERE id = $1");
    Ok(tx.execute(update.bind(id)).await.map(drop)?)
}

/// A page of messages that are not deleted, in the order of their sequence, without those in the absence of this member.
pub(crate) async fn page(
    database: &impl Read,
    conversation: &ConversationId,
    from: MessageRange,
    limit: u16,
    absent: Option<&UserId>,
) -> Result<Vec<Message>, Error> {
    macro_rules! page {
        ($compare:literal, $order:literal) => {
            select!(concat!(
                "WHERE conversation = $1 AND sequence ",
                $compare,
                " $2 AND deleted = FALSE AND NOT EXISTS (
                     SELECT 1 FROM chat_absence a WHERE a.conversation = $1 AND a.user_id = $4
                         AND chat_message.sequence > a.left_sequence
                         AND chat_message.sequence < a.returned_sequence)
                 ORDER BY sequence ",
                $order,
                " LIMIT $3"
            ))
        };
    }
    let (bound, query): (u64, Query<Message>) = match from {
        MessageRange::After(sequence) => (sequence, page!(">", "ASC")),
        MessageRange::Before(sequence) => (sequence, page!("<", "DESC")),
        MessageRange::Newest => (i64::MAX as u64, page!("<", "DESC")),
    };
    let query = query.bind(conversation).bind(bound).bind(limit).bind(absent);
    let mut messages = database.all(query).await?;
    if !matches!(from, MessageRange::After(_)) {
        messages.reverse();
    }
    Ok(messages)
}
