//! Deliveries of alerts, and their attempts.

use std::time::Duration;

use hob_database::{
    Database, Isolation, Keyset, Page, PageRequest, Query, Read, Signal, Snapshot, Transaction, UnixMs,
    ValueKind, from_row, sql,
};

use crate::error::{Error, Result};
use crate::incident::alert::delivery::{Attempt, ClaimedDelivery, Delivery, DeliveryKey, DeliveryState};
use crate::incident::alert::{ChannelId, Notice};

/// Sent when deliveries were added.
pub(crate) const ADDED: Signal = Signal("uptime.deliveries");

const NEWEST_FIRST: Keyset = Keyset::descending(&[("created_at", ValueKind::Int), ("id", ValueKind::Text)]);
/// Channels that one query returns.
const MAX_DUE_CHANNELS: u16 = 500;
/// Old deliveries that one transaction deletes.
const DELETE_BATCH: u16 = 500;

from_row!(Delivery { id, incident_id, kind, number, state, attempts, due_at, created_at });
from_row!(Attempt { delivery_id, number, at, took_ms, delivered, message });

struct ClaimedRow {
    id: String,
    channel_id: ChannelId,
    recipient: String,
    notice: String,
    attempts: u32,
    fence: u64,
}

from_row!(ClaimedRow { id, channel_id, recipient, notice, attempts, fence });

/// Inserts a delivery that is held until then; one that is already there stays as it is.
pub(crate) async fn insert(
    tx: &Transaction,
    key: &DeliveryKey,
    notice: &Notice,
    held_until: UnixMs,
) -> Result<()> {
    let insert = sql(
        "INSERT INTO uptime_delivery (id, incident_id, channel_id, recipient, kind, number, notice, state, attempts,
                          due_at, held_until, fence, created_at)
                      VALUES ($1, $2, $3, $4, $5, $6, $7, 'waiting', 0, $8, $9, 0, $8) ON CONFLICT DO NOTHING",
    );
    let insert = insert.bind(key.id()).bind(key.incident_id.as_str()).bind(&key.channel_id);
    let insert = insert.bind(key.recipient.as_str()).bind(key.kind).bind(key.number);
    tx.execute(insert.bind(notice.to_json()).bind(tx.now()).bind(held_until)).await?;
    tx.signal(ADDED);
    Ok(())
}

/// Deliveries that can be sent now ($1): due, held by no node, and not preceded by a waiting delivery of the same incident
/// to the same channel and recipient. The alphabetical order of the kinds is the order in which they happen.
macro_rules! ready {
    () => {
        "d.state = 'waiting' AND d.due_at <= $1 AND d.held_until < $1 AND NOT EXISTS (
             SELECT 1 FROM uptime_delivery e
             WHERE e.incident_id = d.incident_id AND e.channel_id = d.channel_id
               AND e.recipient = d.recipient AND e.state = 'waiting' AND (e.kind, e.number) < (d.kind, d.number))"
    };
}

/// Whether a delivery is to be sent, now or later.
pub(crate) async fn any_waiting(on: &impl Read) -> Result<bool> {
    let any: Query<(bool,)> = sql("SELECT EXISTS (SELECT 1 FROM uptime_delivery WHERE state = 'waiting')");
    Ok(on.one(any).await?.0)
}

/// Channels that have a delivery to send now.
pub(crate) async fn due_channels(database: &Database) -> Result<Vec<ChannelId>> {
    let work = |snapshot: Snapshot| async move {
        let due: Query<(ChannelId,)> =
            sql(concat!("SELECT DISTINCT d.channel_id FROM uptime_delivery d WHERE ", ready!(), " LIMIT $2"));
        snapshot.all(due.bind(snapshot.now()).bind(MAX_DUE_CHANNELS)).await
    };
    let due: Vec<(ChannelId,)> = database.read(work).await?;
    Ok(due.into_iter().map(|(id,)| id).collect())
}

/// Claims deliveries of a channel that can be sent now, the oldest first, for the length of the lease.
pub(crate) async fn claim(
    database: &Database,
    channel_id: &ChannelId,
    limit: u16,
    lease: Duration,
) -> Result<Vec<ClaimedDelivery>> {
    let work = |tx: Transaction| async move {
        // The outer condition is checked again after waiting for a row that another node has claimed.
        let claim: Query<ClaimedRow> = sql(concat!(
            "UPDATE uptime_delivery SET held_until = $3, fence = fence + 1
             WHERE state = 'waiting' AND held_until < $1 AND id IN (
                 SELECT d.id FROM uptime_delivery d WHERE d.channel_id = $2 AND ",
            ready!(),
            " ORDER BY d.created_at, d.id LIMIT $4)
             RETURNING id, channel_id, recipient, notice, attempts, fence"
        ));
        let claim = claim.bind(tx.now()).bind(channel_id).bind(tx.now().plus(lease)).bind(limit);
        tx.all(claim).await
    };
    let rows: Vec<ClaimedRow> = database.write_with(Isolation::ReadCommitted, work).await?;
    let mut claimed = Vec::with_capacity(rows.len());
    for ClaimedRow { id, channel_id, recipient, notice, attempts, fence } in rows {
        let notice = serde_json::from_str(&notice)
            .map_err(|error| Error::Unreadable(format!("delivery {id}: {error}")))?;
        claimed.push(ClaimedDelivery { id, channel_id, recipient, notice, attempts, fence });
    }
    Ok(claimed)
}

/// Writes the state of a delivery after an attempt and releases it; `false` if another node has claimed it since.
pub(crate) async fn release(
    tx: &Transaction,
    claimed: &ClaimedDelivery,
    state: DeliveryState,
    next_attempt: Duration,
) -> Result<bool> {
    let update = sql("UPDATE uptime_delivery SET state = $3, attempts = $4, due_at = $5, held_until = 0
                      WHERE id = $1 AND fence = $2 AND state = 'waiting'");
    let update = update.bind(claimed.id.as_str()).bind(claimed.fence).bind(state).bind(claimed.attempts + 1);
    Ok(tx.execute(update.bind(tx.now().plus(next_attempt))).await? == 1)
}

pub(crate) async fn insert_attempt(tx: &Transaction, attempt: &Attempt) -> Result<()> {
    let insert = sql("INSERT INTO uptime_attempt (delivery_id, number, at, took_ms, delivered, message)
                      VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING");
    let insert = insert.bind(attempt.delivery_id.as_str()).bind(attempt.number).bind(attempt.at);
    let insert = insert.bind(attempt.took_ms).bind(attempt.delivered).bind(attempt.message.as_str());
    tx.execute(insert).await?;
    Ok(())
}

/// The deliveries of a channel, the newest first.
pub(crate) async fn page(
    on: &impl Read,
    channel_id: &ChannelId,
    request: &PageRequest,
) -> Result<Page<Delivery>> {
    let list =
        sql("SELECT id, incident_id, kind, number, state, attempts, due_at, created_at FROM uptime_delivery
                    WHERE channel_id = $1");
    Ok(on.page(list.bind(channel_id), &NEWEST_FIRST, request).await?)
}

/// The attempts of some deliveries, in order.
pub(crate) async fn attempts(on: &impl Read, deliveries: &[&str]) -> Result<Vec<Attempt>> {
    let list = sql("SELECT delivery_id, number, at, took_ms, delivered, message FROM uptime_attempt
                    WHERE delivery_id IN ($1...) ORDER BY delivery_id, number");
    Ok(on.all(list.bind_list(deliveries.iter().copied())).await?)
}

/// Deletes a batch of finished deliveries that are older than `keep`; `true` if none is left.
pub(crate) async fn delete_old(database: &Database, keep: Duration) -> Result<bool> {
    let work = |tx: Transaction| async move {
        let old: Query<(String,)> =
            sql("SELECT id FROM uptime_delivery WHERE created_at < $1 AND state <> 'waiting'
                                         ORDER BY created_at LIMIT $2");
        let old = tx.all(old.bind(tx.now().minus(keep)).bind(DELETE_BATCH)).await?;
        let ids = || old.iter().map(|(id,)| id.as_str());
        tx.execute(sql("DELETE FROM uptime_attempt WHERE delivery_id IN ($1...)").bind_list(ids())).await?;
        tx.execute(sql("DELETE FROM uptime_delivery WHERE id IN ($1...)").bind_list(ids())).await?;
        Ok(old.len() < usize::from(DELETE_BATCH))
    };
    database.write(work).await
}
