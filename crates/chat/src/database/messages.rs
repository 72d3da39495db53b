//! `chat_message`: the messages of a conversation.

use hob_database::{Query, Read, Transaction, sql};

use crate::Error;
use crate::conversation::message::{Message, MessageRange};
use crate::keys::{ConversationId, UserId};

macro_rules! select {
    ($rest:literal) => {
        sql(concat!(
            "SELECT id, content, sender AS sender_id, sent_at AS timestamp, conversation AS conversation_id,
             number, sequence, client_id, edited_at, deleted FROM chat_message ",
            $rest
        ))
    };
}

/// Inserts a message. `false` if the sender has already sent one under the same client id.
pub(crate) async fn insert(tx: &Transaction, message: &Message) -> Result<bool, Error> {
    let insert = sql("INSERT INTO chat_message
             (conversation, sequence, number, id, sender, client_id, content, sent_at, deleted)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, FALSE) ON CONFLICT DO NOTHING");
    let insert = insert.bind(&message.conversation_id).bind(message.sequence).bind(message.number);
    let insert = insert.bind(&message.id).bind(&message.sender_id).bind(&message.client_id);
    Ok(tx.execute(insert.bind(&message.content).bind(message.timestamp)).await? > 0)
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

/// A page of messages that are not deleted, in the order of their sequence.
pub(crate) async fn page(
    database: &impl Read,
    conversation: &ConversationId,
    from: MessageRange,
    limit: u16,
) -> Result<Vec<Message>, Error> {
    let query: Query<Message> = match from {
        MessageRange::After(sequence) => select!(
            "WHERE conversation = $1 AND sequence > $2 AND deleted = FALSE ORDER BY sequence LIMIT $3"
        )
        .bind(conversation)
        .bind(sequence),
        MessageRange::Before(_) | MessageRange::Newest => {
            let before = if let MessageRange::Before(sequence) = from { sequence } else { i64::MAX as u64 };
            select!("WHERE conversation = $1 AND sequence < $2 AND deleted = FALSE ORDER BY sequence DESC LIMIT $3")
                .bind(conversation)
                .bind(before)
        }
    };
    let mut messages = database.all(query.bind(limit)).await?;
    if !matches!(from, MessageRange::After(_)) {
        messages.reverse();
    }
    Ok(messages)
}
