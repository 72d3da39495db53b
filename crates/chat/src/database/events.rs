//! `chat_event`: the events of a conversation under their sequence numbers.

use hob_database::{Read, Transaction, sql};

use crate::Error;
use crate::conversation::event::Event;
use crate::conversation::message::Message;
use crate::keys::{ConversationId, UserId};

/// An event to insert.
#[derive(Debug)]
pub(crate) struct NewEvent<'a> {
    pub(crate) sequence: u64,
    pub(crate) kind: &'static str,
    pub(crate) actor: &'a UserId,
    /// The sequence of the message that the event is about.
    pub(crate) about: Option<u64>,
    pub(crate) payload: &'a str,
}

pub(crate) async fn insert(
    tx: &Transaction,
    conversation: &ConversationId,
    event: &NewEvent<'_>,
) -> Result<(), Error> {
    let NewEvent { sequence, kind, actor, about, payload } = event;
    let insert =
        sql("INSERT INTO chat_event (conversation, sequence, kind, actor, about, payload, happened_at)
                      VALUES ($1, $2, $3, $4, $5, $6, $7)");
    let insert = insert.bind(conversation).bind(*sequence).bind(*kind).bind(*actor).bind(*about);
    Ok(tx.execute(insert.bind(*payload).bind(tx.now())).await.map(drop)?)
}

/// Inserts the events of new messages.
pub(crate) async fn insert_messages(
    tx: &Transaction,
    sent: impl Iterator<Item = &(Message, Event)>,
) -> Result<(), Error> {
    let row = |(message, event): &(Message, Event)| {
        let Event { sequence, actor, payload } = event.clone();
        (message.conversation_id.clone(), sequence, "message", actor, sequence, payload, tx.now())
    };
    let head = "INSERT INTO chat_event (conversation, sequence, kind, actor, about, payload, happened_at)";
    Ok(tx.insert_all(head, sent.map(row).collect::<Vec<_>>(), "").await.map(drop)?)
}

/// Inserts the events with which the first members join: payloads in order, from sequence 1.
pub(crate) async fn insert_joins(
    tx: &Transaction,
    conversation: &ConversationId,
    actor: &UserId,
    payloads: Vec<String>,
) -> Result<(), Error> {
    let rows = payloads.into_iter().zip(1_u64..);
    let rows = rows.map(|(payload, sequence)| (conversation, sequence, "joined", actor, payload, tx.now()));
    let head = "INSERT INTO chat_event (conversation, sequence, kind, actor, payload, happened_at)";
    Ok(tx.insert_all(head, rows.collect::<Vec<_>>(), "").await.map(drop)?)
}

/// Replaces the payload of the events of one kind that are about a message.
pub(crate) async fn set_payload(
    tx: &Transaction,
    conversation: &ConversationId,
    about: u64,
    kind: &str,
    payload: &str,
) -> Result<(), Error> {
    let update = sql("UPDATE chat_event SET payload = $4
                      WHERE conversation = $1 AND about = $2 AND kind = $3");
    let update = update.bind(conversation).bind(about).bind(kind).bind(payload);
    Ok(tx.execute(update).await.map(drop)?)
}

/// The events after a sequence number, oldest first, without those in the absence of this member.
pub(crate) async fn after(
    database: &impl Read,
    conversation: &ConversationId,
    sequence: u64,
    limit: u16,
    absent: Option<&UserId>,
) -> Result<Vec<Event>, Error> {
    let events = sql("SELECT sequence, actor, payload FROM chat_event
         WHERE conversation = $1 AND sequence > $2 AND NOT EXISTS (
             SELECT 1 FROM chat_absence a WHERE a.conversation = $1 AND a.user_id = $4
                 AND chat_event.sequence > a.left_sequence AND chat_event.sequence < a.returned_sequence)
         ORDER BY sequence LIMIT $3");
    Ok(database.all(events.bind(conversation).bind(sequence).bind(limit).bind(absent)).await?)
}

/// The events before a sequence number, newest first, without those in the absence of this member.
pub(crate) async fn before(
    database: &impl Read,
    conversation: &ConversationId,
    sequence: u64,
    limit: u16,
    absent: Option<&UserId>,
) -> Result<Vec<Event>, Error> {
    let events = sql("SELECT sequence, actor, payload FROM chat_event
         WHERE conversation = $1 AND sequence < $2 AND NOT EXISTS (
             SELECT 1 FROM chat_absence a WHERE a.conversation = $1 AND a.user_id = $4
                 AND chat_event.sequence > a.left_sequence AND chat_event.sequence < a.returned_sequence)
         ORDER BY sequence DESC LIMIT $3");
    Ok(database.all(events.bind(conversation).bind(sequence).bind(limit).bind(absent)).await?)
}

/// The events after a sequence number with which members joined or left, newest first.
pub(crate) async fn membership_changes_after(
    database: &impl Read,
    conversation: &ConversationId,
    sequence: u64,
) -> Result<Vec<Event>, Error> {
    let events = sql("SELECT sequence, actor, payload FROM chat_event
         WHERE conversation = $1 AND sequence > $2 AND kind IN ('joined', 'left') ORDER BY sequence DESC");
    Ok(database.all(events.bind(conversation).bind(sequence)).await?)
}

/// Events after a sequence number that are not about the text of a message, oldest first.
pub(crate) async fn not_about_messages(
    database: &impl Read,
    conversation: &ConversationId,
    sequence: u64,
    limit: u16,
) -> Result<Vec<Event>, Error> {
    let events =
        sql("SELECT sequence, actor, payload FROM chat_event WHERE conversation = $1 AND sequence > $2
         AND kind NOT IN ('message', 'edited', 'deleted') ORDER BY sequence LIMIT $3");
    Ok(database.all(events.bind(conversation).bind(sequence).bind(limit)).await?)
}

/// Replaces the actor and the payload of an event.
pub(crate) async fn replace(
    tx: &Transaction,
    conversation: &ConversationId,
    event: &Event,
) -> Result<(), Error> {
    let update =
        sql("UPDATE chat_event SET actor = $3, payload = $4 WHERE conversation = $1 AND sequence = $2");
    let update = update.bind(conversation).bind(event.sequence).bind(&event.actor).bind(&event.payload);
    Ok(tx.execute(update).await.map(drop)?)
}

/// Replaces an actor of the events about a message with the sender of the message.
pub(crate) async fn set_actor_about(
    tx: &Transaction,
    message: &Message,
    actor: &UserId,
) -> Result<(), Error> {
    let update = sql("UPDATE chat_event SET actor = $4 WHERE conversation = $1 AND about = $2 AND actor = $3
                 AND kind IN ('message', 'edited', 'deleted')");
    let update = update.bind(&message.conversation_id).bind(message.sequence).bind(actor);
    Ok(tx.execute(update.bind(&message.sender_id)).await.map(drop)?)
}
