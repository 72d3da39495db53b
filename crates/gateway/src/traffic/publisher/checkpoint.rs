//! Totals in the database, and how the store gets them back.
//!
//! The database holds, for each shard, the sum of what its instances have flushed and then written here. When a shard
//! was lost, the first instance to notice raises its epoch and sets the counters to that sum; then every instance
//! flushes again what it had flushed but not written. This adds up because the sum is read in the transaction that
//! raises the epoch, and no later transaction changes it before the counters are restored: an instance writes under the
//! epoch in which its last flush was accepted, and a write under an older epoch than the shard's is refused.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hob_database::{Database, Error, Read, column, sql};
use hob_store::epoch::Epoch;

use super::flush::{HOUR_MS, Place};
use crate::keys::Endpoint;
use crate::traffic::counts::{Tally, Totals};

const DAY: Duration = Duration::from_secs(86_400);

/// Which total.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Total,
    Accepted,
    Limited,
    Errors,
    Endpoint,
    EndpointErrors,
    Timed,
    TimeUs,
    Status,
    Instance,
    Hour,
}

column!(Kind as text);

/// Totals by kind and by what they are about; the empty text for those about everything.
pub(crate) type Rows = BTreeMap<(Kind, String), u64>;

/// What one instance adds to the database, once.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    pub(crate) number: u64,
    pub(crate) rows: Rows,
    /// The same, to be flushed again should it be refused.
    pub(crate) tally: Tally,
}

/// What became of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saved {
    /// It is in the database, now or before.
    Saved,
    /// The shard is in a later epoch; nothing was written.
    Superseded,
}

/// Adds the counts of an endpoint.
pub(crate) fn add_rows(rows: &mut Rows, endpoint: &Endpoint, totals: &Totals) {
    let name = endpoint.as_str();
    let mut add = |kind, id: &str, value| {
        if value > 0 {
            *rows.entry((kind, id.to_owned())).or_default() += value;
        }
    };
    add(Kind::Total, "", totals.requests);
    add(Kind::Accepted, "", totals.accepted());
    add(Kind::Limited, "", totals.refused);
    add(Kind::Errors, "", totals.errors);
    add(Kind::Endpoint, name, totals.requests);
    add(Kind::EndpointErrors, name, totals.errors);
    add(Kind::Timed, name, totals.timed);
    add(Kind::TimeUs, name, totals.time_us);
    for (status, count) in &totals.statuses {
        add(Kind::Status, &status.to_string(), *count);
    }
}

/// Writes a checkpoint, unless it is written already.
pub(crate) async fn save(
    database: &Database,
    place: &Place,
    epoch: Epoch,
    checkpoint: &Checkpoint,
) -> Result<Saved, Error> {
    let shard = place.shard.number();
    let (incarnation, instance) = (place.incarnation.as_str(), place.instance.as_str());
    database
        .write(|tx| async move {
            let last = sql("SELECT number FROM gateway_instance WHERE incarnation = $1").bind(incarnation);
            let last: Option<(u64,)> = tx.optional(last).await?;
            if last.is_some_and(|(number,)| number >= checkpoint.number) {
                return Ok(Saved::Saved);
            }
            let found = tx.optional(epoch_of(shard)).await?;
            if found != Some((epoch.get(),)) {
                return Ok(Saved::Superseded);
            }
            let seen = sql("INSERT INTO gateway_instance (incarnation, instance, number, seen_at)
                            VALUES ($1, $2, $3, $4) ON CONFLICT (incarnation)
                            DO UPDATE SET number = excluded.number, seen_at = excluded.seen_at");
            let seen = seen.bind(incarnation).bind(instance).bind(checkpoint.number).bind(tx.now());
            tx.execute(seen).await?;
            let row = |((kind, id), value): (&(Kind, String), &u64)| (shard, *kind, id.clone(), *value);
            let rows: Vec<_> = checkpoint.rows.iter().map(row).collect();
            tx.insert_all(
                "INSERT INTO gateway_total (shard, kind, id, value)",
                rows,
                "ON CONFLICT (shard, kind, id) DO UPDATE SET value = gateway_total.value + excluded.value",
            )
            .await?;
            forget(&tx, shard).await?;
            Ok(Saved::Saved)
        })
        .await
}

/// Drops hours, and instances, that are gone for a day.
async fn forget(tx: &hob_database::Transaction, shard: u32) -> Result<(), Error> {
    let day_ago = tx.now().minus(DAY);
    let hour = day_ago.minus(Duration::from_millis(HOUR_MS)).0.to_string();
    let hours = sql("DELETE FROM gateway_total WHERE shard = $1 AND kind = $2 AND id < $3");
    tx.execute(hours.bind(shard).bind(Kind::Hour).bind(hour)).await?;
    let totals = sql("DELETE FROM gateway_total WHERE shard = $1 AND kind = $2
                      AND id NOT IN (SELECT instance FROM gateway_instance WHERE seen_at >= $3)");
    tx.execute(totals.bind(shard).bind(Kind::Instance).bind(day_ago)).await?;
    let lives = sql("DELETE FROM gateway_instance WHERE seen_at < $1").bind(day_ago);
    tx.execute(lives).await?;
    Ok(())
}

fn epoch_of(shard: u32) -> hob_database::Query<(u32,)> {
    sql("SELECT epoch FROM gateway_shard WHERE shard = $1").bind(shard)
}

/// The epoch of a shard; 0 before its first.
pub(crate) async fn epoch(database: &Database, shard: u32) -> Result<u32, Error> {
    Ok(database.optional(epoch_of(shard)).await?.map_or(0, |(epoch,)| epoch))
}

/// A new epoch of a shard, and the totals that it begins with.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) epoch: u32,
    pub(crate) rows: Rows,
}

/// Begins a new epoch of a shard whose counters are gone, larger than `found` too. `None` if another instance has begun
/// one since `seen`: then that instance restores the counters.
///
/// The totals are read in the transaction that raises the epoch. Read after it, they could lack a checkpoint that saw
/// the old epoch and committed in between, and that checkpoint's instance would never send its counts again.
pub(crate) async fn begin_epoch(
    database: &Database,
    shard: u32,
    seen: u32,
    found: u32,
) -> Result<Option<Begun>, Error> {
    let next = seen.max(found) + 1;
    database
        .write(|tx| async move {
            let first = sql("INSERT INTO gateway_shard (shard, epoch) VALUES ($1, 0) ON CONFLICT DO NOTHING");
            tx.execute(first.bind(shard)).await?;
            let raise = sql("UPDATE gateway_shard SET epoch = $3 WHERE shard = $1 AND epoch = $2");
            if tx.execute(raise.bind(shard).bind(seen).bind(next)).await? == 0 {
                return Ok(None);
            }
            let rows = sql("SELECT kind, id, value FROM gateway_total WHERE shard = $1 ORDER BY kind, id");
            let rows: Vec<(Kind, String, u64)> = tx.all(rows.bind(shard)).await?;
            let rows = rows.into_iter().map(|(kind, id, value)| ((kind, id), value)).collect();
            Ok(Some(Begun { epoch: next, rows }))
        })
        .await
}

const WORDS: [(Kind, &str); 11] = [
    (Kind::Total, "total"),
    (Kind::Accepted, "accepted"),
    (Kind::Limited, "limited"),
    (Kind::Errors, "errors"),
    (Kind::Endpoint, "endpoint"),
    (Kind::EndpointErrors, "endpoint_errors"),
    (Kind::Timed, "timed"),
    (Kind::TimeUs, "time_us"),
    (Kind::Status, "status"),
    (Kind::Instance, "instance"),
    (Kind::Hour, "hour"),
];

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = WORDS.iter().find(|(kind, _)| kind == self).map_or("", |(_, word)| word);
        f.write_str(word)
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        WORDS.iter().find(|(_, word)| *word == text).map(|(kind, _)| *kind).ok_or(())
    }
}
