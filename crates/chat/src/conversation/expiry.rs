//! Message expiry: messages of a conversation are deleted after its time to live, like messages that their sender deletes.

use std::time::Duration;

use hob_database::{Database, Isolation, Transaction};

use crate::Error;
use crate::conversation::event::{self, Event, EventClass, EventPayload};
use crate::conversation::member;
use crate::conversation::message::{self, Message, MessageRange};
use crate::database::{conversations, messages};
use crate::error::{Answer, Refusal, Rollback, into_answer};
use crate::keys::{ConversationId, UserId};

/// The longest time to live: ten years.
const MAX_TTL_S: u64 = 10 * 365 * 86_400;
/// Messages that are deleted in one transaction.
const BATCH: u16 = 50;

/// Sets the time to live of the messages of a conversation, in seconds. `None`: they do not expire.
pub(crate) async fn set(
    database: &Database,
    id: &ConversationId,
    by: &UserId,
    ttl_s: Option<u64>,
) -> Answer<Event> {
    if ttl_s.is_some_and(|ttl| !(1..=MAX_TTL_S).contains(&ttl)) {
        let reason = "1 second to 10 years".to_owned();
        return Ok(Err(Refusal::InvalidField { field: "message_ttl", reason }));
    }
    let work = |tx: Transaction| async move {
        let next = event::next(&tx, id, EventClass::Other).await?;
        member::require_member(&tx, id, by).await?;
        conversations::set_message_ttl(&tx, id, ttl_s).await?;
        let (_, expired) = conversations::lock_expiry(&tx, id).await?.unwrap_or_default();
        plan(&tx, id, ttl_s, expired).await?;
        let payload = EventPayload::Expiry { message_ttl: ttl_s };
        event::write(&tx, id, next.sequence, by, &payload).await
    };
    into_answer(database.write_with(Isolation::ReadCommitted, work).await)
}

/// Deletes some of the messages of a conversation that have expired. Returns them with their events.
pub(crate) async fn expire(database: &Database, id: &ConversationId) -> Result<Vec<(Message, Event)>, Error> {
    let work = |tx: Transaction| async move {
        let Some((Some(ttl_s), expired)) = conversations::lock_expiry(&tx, id).await? else {
            return Ok(Vec::new());
        };
        let oldest = messages::page(&tx, id, MessageRange::After(expired), BATCH, None).await?;
        let latest = tx.now().minus(Duration::from_secs(ttl_s));
        let due: Vec<Message> = oldest.into_iter().take_while(|one| one.timestamp.0 <= latest).collect();
        let expired = due.last().map_or(expired, |message| message.sequence);
        let deleted = message::erase_all(&tx, id, due).await?;
        plan(&tx, id, Some(ttl_s), expired).await?;
        Ok(deleted)
    };
    match database.write_with(Isolation::ReadCommitted, work).await {
        Ok(deleted) => Ok(deleted),
        Err(Rollback::Refused(_)) => Ok(Vec::new()),
        Err(Rollback::Failed(error)) => Err(error),
    }
}

/// Computes when the next message after one expires.
async fn plan(
    tx: &Transaction,
    id: &ConversationId,
    ttl_s: Option<u64>,
    expired: u64,
) -> Result<(), Rollback> {
    let oldest = match ttl_s {
        Some(_) => messages::page(tx, id, MessageRange::After(expired), 1, None).await?.pop(),
        None => None,
    };
    let ttl = Duration::from_secs(ttl_s.unwrap_or_default());
    let expires_at = oldest.map(|oldest| oldest.timestamp.0.plus(ttl));
    Ok(conversations::set_expiry(tx, id, expires_at, expired).await?)
}
