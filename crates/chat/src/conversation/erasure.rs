//! Deletion of a user's data. It is done in the background, in small transactions, and each step can be repeated.
//!
//! The user leaves all conversations, the messages are deleted or stay under a pseudonym, and the pseudonym takes the place of the user id
//! in the events, which stay because their numbers have no gaps.

use hob_database::{Database, Isolation, Transaction, column, from_row};

use crate::Error;
use crate::conversation::event::{self, Event, EventClass, EventPayload, Timestamp};
use crate::conversation::message::{self, Message};
use crate::conversation::outbox;
use crate::database::{conversations, erasures, events, messages, reactions};
use crate::error::{Refusal, Rollback};
use crate::keys::{ConversationId, UserId};

/// Messages or events that are changed in one transaction.
const BATCH: u16 = 50;

/// What happens to the messages of a user who is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErasedMessages {
    Deleted,
    /// They stay, under a pseudonym.
    Anonymized,
}

hob_units::names!(ErasedMessages { Deleted = "delete", Anonymized = "anonymize" });
column!(ErasedMessages as text);

/// A user whose data is being deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct Erasure {
    pub user_id: UserId,
    /// Takes the place of the user id.
    pub pseudonym: UserId,
    pub messages: ErasedMessages,
    pub requested_at: Timestamp,
}

from_row!(Erasure { user_id, pseudonym, messages, requested_at });

/// A change that the subscribers of a conversation get.
pub(crate) enum Change {
    Deleted(Message, Event),
    /// The message has another sender.
    Renamed(Message, Event),
    Other(Event),
}

/// Starts the deletion of a user's data, or changes what happens to the messages that are left.
pub(crate) async fn request(
    database: &Database,
    user: &UserId,
    messages: ErasedMessages,
) -> Result<Erasure, Error> {
    let name = format!("deleted-{:016x}", rand::random::<u64>());
    let pseudonym = UserId::new(name).map_err(|error| Error::Config(error.to_string()))?;
    let pseudonym = &pseudonym;
    database.write(|tx| async move { erasures::insert(&tx, user, pseudonym, messages).await }).await
}

/// Erases the sender of some messages of a user in a conversation, and the messages themselves unless they stay. `None` if there are no
/// more.
pub(crate) async fn erase_messages(
    database: &Database,
    id: &ConversationId,
    erasure: &Erasure,
) -> Result<Option<Vec<Change>>, Error> {
    let work = |tx: Transaction| async move {
        conversations::lock_expiry(&tx, id).await?.ok_or(Refusal::ConversationNotFound)?;
        let found = messages::of_sender(&tx, id, &erasure.user_id, BATCH).await?;
        if found.is_empty() {
            return Ok(None);
        }
        let mut changes = Vec::new();
        let (mut gone, mut stay): (Vec<_>, Vec<_>) = found.into_iter().partition(|message| message.deleted);
        if erasure.messages == ErasedMessages::Deleted {
            for (message, event) in message::erase_all(&tx, id, std::mem::take(&mut stay)).await? {
                gone.push(message.clone());
                changes.push(Change::Deleted(message, event));
            }
        }
        for message in gone {
            rename_sender(&tx, message, erasure).await?;
        }
        for message in stay {
            let message = rename_sender(&tx, message, erasure).await?;
            let next = event::next(&tx, id, EventClass::Other).await?;
            let payload = EventPayload::Edited { message: message.clone() };
            let event = event::write(&tx, id, next.sequence, &erasure.pseudonym, &payload).await?;
            changes.push(Change::Renamed(message, event));
        }
        Ok(Some(changes))
    };
    answer(database.write_with(Isolation::ReadCommitted, work).await)
}

/// Replaces the sender of a message, in the message and in its events.
async fn rename_sender(
    tx: &Transaction,
    mut message: Message,
    erasure: &Erasure,
) -> Result<Message, Rollback> {
    message.sender_id = erasure.pseudonym.clone();
    message.client_id = None;
    messages::set_sender(tx, &message).await?;
    for payload in [
        EventPayload::Message { message: message.clone() },
        EventPayload::Edited { message: message.clone() },
        EventPayload::Deleted { message: message.clone() },
    ] {
        event::replace(tx, &message, &payload).await?;
    }
    events::set_actor_about(tx, &message, &erasure.user_id).await?;
    Ok(message)
}

/// Removes one reaction of a user. `None` after the last one.
pub(crate) async fn erase_reaction(
    database: &Database,
    erasure: &Erasure,
) -> Result<Option<(ConversationId, Change)>, Error> {
    let user = &erasure.user_id;
    let work = |tx: Transaction| async move {
        let Some((id, sequence, emoji)) = reactions::first_of_user(&tx, user).await? else { return Ok(None) };
        let next = event::next(&tx, &id, EventClass::Other).await?;
        let message = messages::at(&tx, &id, sequence).await?.ok_or(Refusal::MessageNotFound)?;
        reactions::delete(&tx, &message, user, &emoji).await?;
        let payload =
            EventPayload::Unreacted { message_id: message.id, sequence, user_id: user.clone(), emoji };
        let event = event::write(&tx, &id, next.sequence, user, &payload).await?;
        Ok(Some((id, Change::Other(event))))
    };
    answer(database.write_with(Isolation::ReadCommitted, work).await)
}

/// Replaces the user id in other events of a conversation, after a sequence. Returns the last one of the batch, or `None` at the end.
pub(crate) async fn erase_events(
    database: &Database,
    id: &ConversationId,
    erasure: &Erasure,
    after: u64,
) -> Result<Option<u64>, Error> {
    let work = |tx: Transaction| async move {
        let found = events::not_about_messages(&tx, id, after, BATCH).await?;
        let last = found.last().map(|event| event.sequence);
        for mut event in found {
            let mut payload: EventPayload = serde_json::from_str(&event.payload)?;
            if payload.rename_user(&erasure.user_id, &erasure.pseudonym) | (event.actor == erasure.user_id) {
                if event.actor == erasure.user_id {
                    event.actor = erasure.pseudonym.clone();
                }
                event.payload = payload.to_json()?;
                events::replace(&tx, id, &event).await?;
            }
        }
        Ok(last)
    };
    answer(database.write_with(Isolation::ReadCommitted, work).await)
}

/// Deletes what is left of a user. The relay may be counting for the user just now, so it deletes the counters afterwards.
pub(crate) async fn finish(database: &Database, erasure: &Erasure) -> Result<(), Error> {
    let user = &erasure.user_id;
    let work = |tx: Transaction| async move {
        if let Some(id) = erasures::conversations_after(&tx, user, "", 1).await?.pop() {
            outbox::emit_recount(&tx, &id, user)?;
        }
        Ok(erasures::finish(&tx, erasure).await?)
    };
    answer(database.write(work).await)
}

fn answer<T: Default>(outcome: Result<T, Rollback>) -> Result<T, Error> {
    match outcome {
        Ok(done) => Ok(done),
        // The conversation or the message does not exist.
        Err(Rollback::Refused(_)) => Ok(T::default()),
        Err(Rollback::Failed(error)) => Err(error),
    }
}
