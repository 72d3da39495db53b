//! Saves totals in the database, from which a new epoch starts after a loss of the store.
//!
//! For each shard, the database holds the sum of the counts that its instances have flushed and then saved. When a
//! shard was lost, the first instance that notices raises the shard's epoch, and the counters are set to that sum. Then
//! every instance flushes again what it had flushed but not saved. No count is lost or repeated: an instance saves under
//! the epoch in which its last flush was accepted, and a save under an older epoch than the shard's is refused. So the
//! sum of a new epoch changes only after its counters are restored, when it is not written to the store any more.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use hob_database::{Database, Error, Transaction};
use hob_store::epoch::Epoch;

use super::flush::{Destination, HOUR_MS};
use crate::database::{self, TotalKind, Totals};
use crate::keys::Endpoint;
use crate::traffic::counts::{Counts, RequestTotals};

const DAY: Duration = Duration::from_secs(86_400);
/// How long traffic by hour is kept.
const KEEP_HOURS: Duration = Duration::from_secs(31 * 86_400);

/// What one instance adds to the database, once.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    pub(crate) number: u64,
    pub(crate) totals: Totals,
    /// By the start of the hour.
    pub(crate) hours: BTreeMap<u64, RequestTotals>,
    /// The same counts, which are flushed again if the checkpoint is refused.
    pub(crate) counts: Counts,
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
pub(crate) fn add_totals(totals: &mut Totals, endpoint: &Endpoint, endpoint_totals: &RequestTotals) {
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
    add(TotalKind::ServerErrors, "", endpoint_totals.server_errors);
    add(TotalKind::Endpoint, name, endpoint_totals.requests);
    add(TotalKind::EndpointErrors, name, endpoint_totals.errors);
    add(TotalKind::EndpointLimited, name, endpoint_totals.refused);
    add(TotalKind::EndpointServerErrors, name, endpoint_totals.server_errors);
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
            database::add_hours(&tx, shard, &checkpoint.hours).await?;
            delete_old(&tx, shard).await?;
            Ok(SaveOutcome::Saved)
        })
        .await
}

/// Deletes instances and hourly totals that ended more than a day ago, and the traffic of hours that is older than a month.
async fn delete_old(tx: &Transaction, shard: u32) -> Result<(), Error> {
    let day_ago = tx.now().minus(DAY);
    database::delete_hourly_totals_before(tx, shard, day_ago.minus(Duration::from_millis(HOUR_MS))).await?;
    database::delete_hours_before(tx, tx.now().minus(KEEP_HOURS)).await?;
    database::delete_instances_before(tx, shard, day_ago).await
}

/// Adds the totals of all other endpoints than `names` to those of `other`.
pub(crate) async fn fold_endpoints(
    database: &Database,
    shard: u32,
    epoch: Epoch,
    names: &HashSet<String>,
) -> Result<(), Error> {
    database
        .write(|tx| async move {
            if database::shard_epoch(&tx, shard).await? != Some(epoch.get()) {
                return Ok(());
            }
            let mut other = Totals::new();
            for ((kind, id), value) in database::totals(&tx, shard).await? {
                if kind.is_by_endpoint() && id != "other" && !names.contains(&id) {
                    database::delete_total(&tx, shard, kind, &id).await?;
                    *other.entry((kind, "other".to_owned())).or_default() += value;
                }
            }
            database::add_totals(&tx, shard, &other).await
        })
        .await
}

/// The epoch of a shard; 0 before its first.
pub(crate) async fn epoch(database: &Database, shard: u32) -> Result<u32, Error> {
    Ok(database::shard_epoch(database, shard).await?.unwrap_or(0))
}

/// Raises the epoch of a shard above `lost`; `None` if another instance has done so.
pub(crate) async fn raise_epoch(database: &Database, shard: u32, lost: Epoch) -> Result<Option<u32>, Error> {
    let lost = lost.get();
    let raised =
        database.write(|tx| async move { database::raise_shard_epoch(&tx, shard, lost).await }).await?;
    Ok(raised.then_some(lost + 1))
}

/// The totals that an epoch starts with; `None` if the shard is in another epoch.
///
/// The epoch is read in the same serializable transaction. Otherwise the totals could lack a checkpoint that read the old
/// epoch and commits later, and that checkpoint's instance would never send its counts again.
pub(crate) async fn totals(database: &Database, shard: u32, epoch: Epoch) -> Result<Option<Totals>, Error> {
    database
        .write(|tx| async move {
            if database::shard_epoch(&tx, shard).await? != Some(epoch.get()) {
                return Ok(None);
            }
            database::totals(&tx, shard).await.map(Some)
        })
        .await
}
