//! Deliveries and their attempts in the database.

use std::time::Duration;

use hob_database::{
    Database, Isolation, Keyset, Kind, Page, PageRequest, Query, Read, Transaction, UnixMs, from_row, sql,
};

use super::{Arrival, Attempt, Delivery, Held, Patience};
use crate::error::{Error, Result};
use crate::incident::alert::channel::ChannelId;
use crate::incident::alert::notice::{Notice, NoticeKind};

const NEWEST_FIRST: Keyset = Keyset::descending(&[("created_at", Kind::Int), ("id", Kind::Text)]);

/// The most of what was said to us that is kept, in bytes.
const LONGEST_MESSAGE: usize = 300;

/// As many as are forgotten at a time.
const FORGOTTEN_AT_ONCE: u16 = 500;

from_row!(Delivery { id, incident_id, kind, number, state, attempts, due_at, created_at });
from_row!(Attempt { delivery_id, number, at, took_ms, delivered, message });

struct Claimed {
    id: String,
    channel_id: ChannelId,
    notice: String,
    attempts: u32,
    fence: u64,
}

from_row!(Claimed { id, channel_id, notice, attempts, fence });

/// What makes a delivery one of its kind.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) incident_id: String,
    pub(crate) channel_id: ChannelId,
    pub(crate) kind: NoticeKind,
    pub(crate) number: u32,
}

impl Key {
    fn id(&self) -> String {
        format!("{}.{}.{}.{}", self.incident_id, self.channel_id, self.kind, self.number)
    }
}

/// Enters a delivery, unless it is there already.
pub(crate) async fn add(tx: &Transaction, key: &Key, notice: &Notice) -> Result<()> {
    insert(tx, key, notice, UnixMs(0)).await
}

/// Enters a test in the hands of whoever asked for it, so that nobody else carries it.
pub(crate) async fn add_test(database: &Database, channel_id: &ChannelId, lease: Duration) -> Result<Held> {
    let key = &Key {
        incident_id: format!("t{:016x}", rand::random::<u64>()),
        channel_id: channel_id.clone(),
        kind: NoticeKind::Test,
        number: 1,
    };
    let work = |tx: Transaction| async move { insert(&tx, key, &Notice::Test, tx.now().plus(lease)).await };
    database.write(work).await?;
    Ok(Held { id: key.id(), channel_id: channel_id.clone(), notice: Notice::Test, attempts: 0, fence: 0 })
}

async fn insert(tx: &Transaction, key: &Key, notice: &Notice, held_until: UnixMs) -> Result<()> {
    let insert = sql(
        "INSERT INTO uptime_delivery (id, incident_id, channel_id, kind, number, notice, state, attempts,
                          due_at, held_until, fence, created_at)
                      VALUES ($1, $2, $3, $4, $5, $6, 'waiting', 0, $7, $8, 0, $7) ON CONFLICT DO NOTHING",
    );
    let json = serde_json::to_string(notice);
    let json = json.unwrap_or_else(|error| unreachable!("a notice is plain data: {error}"));
    let insert = insert.bind(key.id()).bind(key.incident_id.as_str()).bind(&key.channel_id).bind(key.kind);
    tx.execute(insert.bind(key.number).bind(json).bind(tx.now()).bind(held_until)).await?;
    Ok(())
}

/// What may be carried now ($1): it is due, nobody holds it, and what the channel was to hear of the incident before
/// has arrived or was given up. By their names, kinds are in the order in which they happen.
macro_rules! ready {
    () => {
        "d.state = 'waiting' AND d.due_at <= $1 AND d.held_until < $1 AND NOT EXISTS (
             SELECT 1 FROM uptime_delivery e
             WHERE e.incident_id = d.incident_id AND e.channel_id = d.channel_id AND e.state = 'waiting'
               AND (e.kind, e.number) < (d.kind, d.number))"
    };
}

/// Channels for which something can be carried.
pub(crate) async fn due_channels(database: &Database) -> Result<Vec<ChannelId>> {
    let work = |snapshot: hob_database::Snapshot| async move {
        let due: Query<(ChannelId,)> = sql(concat!(
            "SELECT DISTINCT d.channel_id FROM uptime_delivery d WHERE ",
            ready!(),
            " LIMIT 500"
        ));
        snapshot.all(due.bind(snapshot.now())).await
    };
    let due: Vec<(ChannelId,)> = database.read(work).await?;
    Ok(due.into_iter().map(|(id,)| id).collect())
}

/// Takes deliveries of a channel that are due, the oldest first, for as long as the lease.
pub(crate) async fn claim(
    database: &Database,
    channel_id: &ChannelId,
    most: u16,
    lease: Duration,
) -> Result<Vec<Held>> {
    let work = |tx: Transaction| async move {
        // Asked again outside: another may have taken one while we waited for its row.
        let claim: Query<Claimed> = sql(concat!(
            "UPDATE uptime_delivery SET held_until = $3, fence = fence + 1
             WHERE state = 'waiting' AND held_until < $1 AND id IN (
                 SELECT d.id FROM uptime_delivery d WHERE d.channel_id = $2 AND ",
            ready!(),
            " ORDER BY d.created_at, d.id LIMIT $4)
             RETURNING id, channel_id, notice, attempts, fence"
        ));
        let claim = claim.bind(tx.now()).bind(channel_id).bind(tx.now().plus(lease)).bind(most);
        tx.all(claim).await
    };
    let claimed: Vec<Claimed> = database.write_with(Isolation::Committed, work).await?;
    let mut held = Vec::with_capacity(claimed.len());
    for row in claimed {
        let notice = serde_json::from_str(&row.notice)
            .map_err(|_| Error::Unreadable(format!("a delivery {} that cannot be read", row.id)))?;
        let Claimed { id, channel_id, attempts, fence, .. } = row;
        held.push(Held { id, channel_id, notice, attempts, fence });
    }
    Ok(held)
}

/// Writes down how an attempt went, and what becomes of the delivery. An attempt of somebody whose lease had run out,
/// and who was overtaken, is not heard.
pub(crate) async fn settle(
    database: &Database,
    held: &Held,
    arrival: &Arrival,
    took: Duration,
    patience: Patience,
) -> Result<()> {
    let number = held.attempts + 1;
    let (state, pause) = patience.after(number, arrival);
    let message = shorten(arrival.message());
    let work = |tx: Transaction| async move {
        let update = sql("UPDATE uptime_delivery SET state = $3, attempts = $4, due_at = $5, held_until = 0
                          WHERE id = $1 AND fence = $2 AND state = 'waiting'");
        let update = update.bind(held.id.as_str()).bind(held.fence).bind(state).bind(number);
        if tx.execute(update.bind(tx.now().plus(pause))).await? == 0 {
            return Ok(());
        }
        let insert = sql("INSERT INTO uptime_attempt (delivery_id, number, at, took_ms, delivered, message)
                          VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING");
        let insert = insert.bind(held.id.as_str()).bind(number).bind(tx.now());
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX >> 1);
        let delivered = matches!(arrival, Arrival::Delivered(_));
        tx.execute(insert.bind(took_ms).bind(delivered).bind(message)).await?;
        Ok(())
    };
    database.write(work).await
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

/// Drops old deliveries that are done with, a bounded number of them; says whether that was all.
pub(crate) async fn forget(database: &Database, keep: Duration) -> Result<bool> {
    let work = |tx: Transaction| async move {
        let old: Query<(String,)> =
            sql("SELECT id FROM uptime_delivery WHERE created_at < $1 AND state <> 'waiting'
                                         ORDER BY created_at LIMIT $2");
        let old = tx.all(old.bind(tx.now().minus(keep)).bind(FORGOTTEN_AT_ONCE)).await?;
        let ids = || old.iter().map(|(id,)| id.as_str());
        tx.execute(sql("DELETE FROM uptime_attempt WHERE delivery_id IN ($1...)").bind_list(ids())).await?;
        tx.execute(sql("DELETE FROM uptime_delivery WHERE id IN ($1...)").bind_list(ids())).await?;
        Ok(old.len() < usize::from(FORGOTTEN_AT_ONCE))
    };
    database.write(work).await
}

fn shorten(message: &str) -> &str {
    &message[..message.floor_char_boundary(LONGEST_MESSAGE)]
}
