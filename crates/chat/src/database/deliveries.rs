//! `chat_delivery`: notices for webhooks that wait or have failed.

use std::time::Duration;

use hob_database::{
    Database, Isolation, Keyset, Page, PageRequest, Query, Read, Signal, Transaction, UnixMs, ValueKind,
    from_row, sql,
};

use crate::Error;
use crate::webhook::Notice;

/// Sent when deliveries were added.
pub(crate) const ADDED: Signal = Signal("chat.deliveries");

const OLDEST_FIRST: Keyset = Keyset::ascending(&[("created_at", ValueKind::Int), ("id", ValueKind::Text)]);
/// Dead letters that one statement changes.
const BATCH: u16 = 500;

/// A delivery that has failed for good.
#[derive(Clone, Debug)]
pub(crate) struct DeadLetter {
    pub(crate) id: String,
    pub(crate) webhook: String,
    pub(crate) notice: String,
    pub(crate) attempts: u32,
    pub(crate) error: String,
    pub(crate) created_at: UnixMs,
}

from_row!(DeadLetter { id, webhook, notice, attempts, error, created_at });

/// A delivery that this node has claimed.
#[derive(Clone, Debug)]
pub(crate) struct ClaimedDelivery {
    pub(crate) id: String,
    pub(crate) notice: String,
    /// Attempts before this one.
    pub(crate) attempts: u32,
    pub(crate) fence: u64,
}

from_row!(ClaimedDelivery { id, notice, attempts, fence });

/// What becomes of a delivery after an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    Remove,
    Retry { pause: Duration, error: &'a str },
    Fail { error: &'a str },
}

pub(crate) async fn insert(tx: &Transaction, id: &str, webhook: &str, notice: &Notice) -> Result<(), Error> {
    let insert = sql(
        "INSERT INTO chat_delivery (id, webhook, notice, state, attempts, error, due_at, held_until, fence, created_at)
         VALUES ($1, $2, $3, 'waiting', 0, '', $4, 0, 0, $4) ON CONFLICT DO NOTHING",
    );
    let insert = insert.bind(id).bind(webhook).bind(serde_json::to_string(notice)?).bind(tx.now());
    tx.execute(insert).await?;
    tx.signal(ADDED);
    Ok(())
}

/// The number of deliveries that wait, counted up to a limit.
pub(crate) async fn count_waiting(on: &impl Read, limit: u32) -> Result<u64, Error> {
    let count: Query<(u64,)> = sql("SELECT count(*) FROM
        (SELECT 1 FROM chat_delivery WHERE state = 'waiting' LIMIT $1) AS waiting");
    Ok(on.one(count.bind(limit)).await?.0)
}

/// The webhooks for which deliveries wait.
pub(crate) async fn waiting_webhooks(on: &impl Read) -> Result<Vec<String>, Error> {
    let webhooks: Query<(String,)> =
        sql("SELECT DISTINCT webhook FROM chat_delivery WHERE state = 'waiting' LIMIT 100");
    Ok(on.all(webhooks).await?.into_iter().map(|(webhook,)| webhook).collect())
}

/// Claims deliveries of a webhook that are due, the oldest first, for the length of the lease.
pub(crate) async fn claim(
    database: &Database,
    webhook: &str,
    limit: u16,
    lease: Duration,
) -> Result<Vec<ClaimedDelivery>, Error> {
    let work = |tx: Transaction| async move {
        // The outer condition is checked again after waiting for a row that another node has claimed.
        let claim = sql("UPDATE chat_delivery SET held_until = $3, fence = fence + 1
             WHERE state = 'waiting' AND held_until < $1 AND id IN (
                 SELECT id FROM chat_delivery
                 WHERE webhook = $2 AND state = 'waiting' AND due_at <= $1 AND held_until < $1
                 ORDER BY due_at, id LIMIT $4)
             RETURNING id, notice, attempts, fence");
        Ok(tx.all(claim.bind(tx.now()).bind(webhook).bind(tx.now().plus(lease)).bind(limit)).await?)
    };
    database.write_with(Isolation::ReadCommitted, work).await
}

/// Records an attempt. Does nothing if another node has claimed the delivery since.
pub(crate) async fn finish(
    database: &Database,
    claimed: &ClaimedDelivery,
    next: &Next<'_>,
) -> Result<(), Error> {
    let (state, pause, error) = match next {
        Next::Remove => {
            let delete = sql("DELETE FROM chat_delivery WHERE id = $1 AND fence = $2 AND state = 'waiting'");
            return Ok(database.execute(delete.bind(&*claimed.id).bind(claimed.fence)).await.map(drop)?);
        }
        Next::Retry { pause, error } => ("waiting", *pause, *error),
        Next::Fail { error } => ("failed", Duration::ZERO, *error),
    };
    let work = |tx: Transaction| async move {
        let update = sql("UPDATE chat_delivery
             SET state = $3, attempts = $4, due_at = $5, error = $6, held_until = 0
             WHERE id = $1 AND fence = $2 AND state = 'waiting'");
        let update = update.bind(&*claimed.id).bind(claimed.fence).bind(state).bind(claimed.attempts + 1);
        Ok(tx.execute(update.bind(tx.now().plus(pause)).bind(error)).await.map(drop)?)
    };
    database.write_with(Isolation::ReadCommitted, work).await
}

/// Makes the deliveries of a webhook dead letters that have waited for this long.
pub(crate) async fn fail_waiting(
    database: &Database,
    webhook: &str,
    age: Duration,
    error: &str,
) -> Result<(), Error> {
    let work = |tx: Transaction| async move {
        let fail = sql("UPDATE chat_delivery SET state = 'failed', error = $3
                        WHERE webhook = $1 AND state = 'waiting' AND created_at < $2");
        Ok(tx.execute(fail.bind(webhook).bind(tx.now().minus(age)).bind(error)).await.map(drop)?)
    };
    database.write_with(Isolation::ReadCommitted, work).await
}

/// The dead letters, the oldest first.
pub(crate) async fn dead_letters(on: &impl Read, request: &PageRequest) -> Result<Page<DeadLetter>, Error> {
    let list = sql("SELECT id, webhook, notice, attempts, error, created_at FROM chat_delivery
                    WHERE state = 'failed'");
    Ok(on.page(list, &OLDEST_FIRST, request).await?)
}

/// Sends a dead letter again; `false` if there is none with this id.
pub(crate) async fn retry(database: &Database, id: &str) -> Result<bool, Error> {
    let work = |tx: Transaction| async move {
        let retry = sql("UPDATE chat_delivery SET state = 'waiting', attempts = 0, due_at = $2
                         WHERE id = $1 AND state = 'failed'");
        let found = tx.execute(retry.bind(id).bind(tx.now())).await? == 1;
        tx.signal(ADDED);
        Ok::<_, Error>(found)
    };
    database.write_with(Isolation::ReadCommitted, work).await
}

/// Sends a batch of dead letters again, all or those of a webhook; returns their number.
pub(crate) async fn retry_all(database: &Database, webhook: Option<&str>) -> Result<u64, Error> {
    let work = |tx: Transaction| async move {
        let retry = sql("UPDATE chat_delivery SET state = 'waiting', attempts = 0, due_at = $1
             WHERE state = 'failed' AND id IN (
                 SELECT id FROM chat_delivery WHERE state = 'failed' AND (webhook = $2 OR $3)
                 ORDER BY created_at, id LIMIT $4)");
        let retry = retry.bind(tx.now()).bind(webhook.unwrap_or_default()).bind(webhook.is_none());
        let retried = tx.execute(retry.bind(BATCH)).await?;
        tx.signal(ADDED);
        Ok::<_, Error>(retried)
    };
    database.write_with(Isolation::ReadCommitted, work).await
}

/// Deletes a dead letter; `false` if there is none with this id.
pub(crate) async fn delete(database: &Database, id: &str) -> Result<bool, Error> {
    let delete = sql("DELETE FROM chat_delivery WHERE id = $1 AND state = 'failed'");
    Ok(database.execute(delete.bind(id)).await? == 1)
}

/// Deletes a batch of dead letters that are older than `keep`, or more than `max`; returns their number.
pub(crate) async fn delete_old(database: &Database, keep: Duration, max: u32) -> Result<u64, Error> {
    let work = |tx: Transaction| async move {
        let delete = sql("DELETE FROM chat_delivery WHERE state = 'failed' AND id IN (
                 SELECT id FROM (SELECT id, created_at, row_number() OVER (ORDER BY created_at DESC, id DESC) AS nth
                                 FROM chat_delivery WHERE state = 'failed') AS letters
                 WHERE created_at < $1 OR nth > $2 LIMIT $3)");
        Ok::<_, Error>(tx.execute(delete.bind(tx.now().minus(keep)).bind(max).bind(BATCH)).await?)
    };
    database.write_with(Isolation::ReadCommitted, work).await
}
