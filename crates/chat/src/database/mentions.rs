//! `chat_mention`: the messages that mention a user.

use hob_database::{Transaction, sql};

use crate::Error;
use crate::conversation::message::Message;

/// Inserts the mentions of new messages. Senders who mention themselves are not counted.
pub(crate) async fn insert_all(
    tx: &Transaction,
    messages: impl Iterator<Item = &Message>,
) -> Result<(), Error> {
    let mut rows = Vec::new();
    for message in messages {
        for user in message.mentions.0.iter().filter(|user| **user != message.sender_id) {
            rows.push((user.clone(), message.conversation_id.clone(), message.sequence));
        }
    }
    if !rows.is_empty() {
        tx.insert_all("INSERT INTO chat_mention (user_id, conversation, sequence)", rows, "").await?;
    }
    Ok(())
}

/// Deletes the mentions in a message.
pub(crate) async fn delete_all(tx: &Transaction, message: &Message) -> Result<(), Error> {
    let delete =
        sql("DELETE FROM chat_mention WHERE conversation = $1 AND sequence = $2 AND user_id IN ($3...)");
    let delete = delete.bind(&message.conversation_id).bind(message.sequence).bind_list(&message.mentions.0);
    Ok(tx.execute(delete).await.map(drop)?)
}
