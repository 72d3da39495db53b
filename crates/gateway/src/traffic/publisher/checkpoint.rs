//! Saves totals in the database, and begins a new epoch from them after a loss of the store.
//!
//! For each shard, the database holds the sum of the counts that its instances have flushed and then saved. When a
//! shard was lost, the first instance that notices raises the shard's epoch and sets the counters to that sum. Then every
//! instance flushes again what it had flushed but not saved. No count is lost or repeated, because the sum is read in the
//! transaction that raises the epoch, and no later transaction changes it before the counters are restored: an instance
//! saves under the epoch in which its last flush was accepted, and a save under an older epoch than the shard's is
//! refused.

use std::time::Duration;

use hob_database::{Database, Error, Transaction};
use hob_store::epoch::Epoch;

use super::flush::{Destination, HOUR_MS};
use crate::database::{self, TotalKind, Totals};
use crate::keys::Endpoint;
use crate::traffic::counts;

const DAY: Duration = Duration::from_secs(86_400);

/// What one instance adds to the database, once.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    pub(crate) number: u64,
    pub(crate) totals: Totals,
    /// The same counts, which are flushed again if the checkpoint is refused.
    pub(crate) counts: counts::Counts,
}

/// The result of saving a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SaveOutcome {
    /// It is in the database, now or since an earlier attempt.
    Saved,
    /// The shard is in a later epoch; nothing was saved.
    Superseded,
}

/// Adds the counts of an endpoint.
pub(crate) fn add_totals(totals: &mut Totals, endpoint: &Endpoint, endpoint_totals: &counts::RequestTotals) {
    let name = endpoint.as_str();
    let mut add = |kind, id: &str, value| {
        if value > 0 {
            *totals.entry((kind, id.to_owned())).or_default() += value;
        }
    };
    add(TotalKind::Total, "", endpoint_totals.requests);
    add(TotalKind::Accepted, "", endpoint_totals.accepted());
    add(TotalKind::Limited, "", endpoint_totals.refused);
    add(TotalKind::Errors, "", endpoint_totals.errors);
    add(TotalKind::Endpoint, name, endpoint_totals.requests);
    add(TotalKind::EndpointErrors, name, endpoint_totals.errors);
    add(TotalKind::Timed, name, endpoint_totals.timed);
    add(TotalKind::TimeUs, name, endpoint_totals.time_us);
    for (status, count) in &endpoint_totals.statuses {
        add(TotalKind::Status, &status.to_string(), *count);
    }
}

/// Saves a checkpoint, unless it is saved already.
pub(crate) async fn save(
    database: &Database,
    destination: &Destination,
    epoch: Epoch,
    checkpoint: &Checkpoint,
) -> Result<SaveOutcome, Error> {
    let shard = destination.shard.number();
    let (incarnation, instance) = (destination.incarnation.as_str(), destination.instance.as_str());
    database
        .write(|tx| async move {
            let last = database::last_checkpoint(&tx, incarnation).await?;
            if last.is_some_and(|number| number >= checkpoint.number) {
                return Ok(SaveOutcome::Saved);
            }
            if database::shard_epoch(&tx, shard).await? != Some(epoch.get()) {
                return Ok(SaveOutcome::Superseded);
            }
            database::save_checkpoint_number(&tx, incarnation, instance, checkpoint.number).await?;
            database::add_totals(&tx, shard, &checkpoint.totals).await?;
            delete_old(&tx, shard).await?;
            Ok(SaveOutcome::Saved)
        })
        .await
}

/// Deletes hours and instances that ended more than a day ago.
async fn delete_old(tx: &Transaction, shard: u32) -> Result<(), Error> {
    let day_ago = tx.now().minus(DAY);
    database::delete_hours_before(tx, shard, day_ago.minus(Duration::from_millis(HOUR_MS))).await?;
    database::delete_instances_before(tx, shard, day_ago).await
}

/// The epoch of a shard; 0 before its first.
pub(crate) async fn epoch(database: &Database, shard: u32) -> Result<u32, Error> {
    Ok(database::shard_epoch(database, shard).await?.unwrap_or(0))
}

/// A new epoch of a shard, and the totals that it starts with.
#[derive(Debug)]
pub(crate) struct NewEpoch {
    pub(crate) epoch: u32,
    pub(crate) totals: Totals,
}

/// Begins a new epoch of a shard whose counters are gone. The new epoch is also larger than `found`. `None` if another
/// instance has begun one since `seen` was read: then that instance restores the counters.
///
/// The totals are read in the transaction that raises the epoch. Read after it, they could lack a checkpoint that read
/// the old epoch and committed in between, and that checkpoint's instance would never send its counts again.
pub(crate) async fn begin_epoch(
    database: &Database,
    shard: u32,
    seen: u32,
    found: u32,
) -> Result<Option<NewEpoch>, Error> {
    let next = seen.max(found) + 1;
    database
        .write(|tx| async move {
            if !database::raise_shard_epoch(&tx, shard, seen, next).await? {
                return Ok(None);
            }
            Ok(Some(NewEpoch { epoch: next, totals: database::totals(&tx, shard).await? }))
        })
        .await
}
