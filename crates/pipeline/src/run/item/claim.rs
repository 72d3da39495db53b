//! Claims: items that a worker holds under a lease. When the lease expires, the items are released.

use std::time::Duration;

use hob_database::{Database, Isolation, Snapshot, Transaction};

use super::{CountChanges, Item, ItemState};
use crate::database::claims::{self, ExpiredClaim};
use crate::database::{items, runs};
use crate::error::Result;
use crate::plan::retry::FailureClass;
use crate::run::RunId;

/// An item becomes a dead letter after this many attempts that ended with an expired lease.
const MAX_LOST_WORKERS: u32 = 20;

/// Items that a worker holds under one lease.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) number: i64,
    pub(crate) items: Vec<Item>,
}

/// Claims items that are due; `None` if there are none.
pub(crate) async fn claim(
    database: &Database,
    run: &RunId,
    worker: &str,
    limit: u32,
    lease: Duration,
) -> Result<Option<Claim>> {
    let work = |tx: Transaction| async move {
        // Locks the run, so that claims of one run are serialized.
        let Some(number) = runs::next_claim_number(&tx, run).await? else { return Ok(None) };
        let mut items = items::claim_due(&tx, run, number, limit).await?;
        items.sort_unstable_by_key(|item| item.seq);
        let (Some(first), Some(last)) = (items.first(), items.last()) else { return Ok(None) };
        claims::insert(&tx, run, number, worker, (first.seq, last.seq), lease).await?;
        let mut counts = CountChanges::default();
        for item in &items {
            counts.add(&item.step, &item.class, ItemState::Waiting, -1);
            counts.add(&item.step, &item.class, ItemState::Claimed, 1);
        }
        counts.write(&tx, run).await?;
        Ok(Some(Claim { number, items }))
    };
    // A read is cheaper than a write, and mostly no item is due while a run waits.
    if !items::has_waiting(database, run).await? {
        return Ok(None);
    }
    database.write_with(Isolation::ReadCommitted, work).await
}

/// Renews the leases of a worker, and returns the numbers of the claims that it still holds.
pub(crate) async fn renew(
    database: &Database,
    run: &RunId,
    worker: &str,
    lease: Duration,
) -> Result<Vec<i64>> {
    let work = |tx: Transaction| async move { Ok(claims::renew(&tx, run, worker, lease).await?) };
    database.write_with(Isolation::ReadCommitted, work).await
}

/// Releases the items of expired claims. Returns how many.
pub(crate) async fn reclaim_expired(database: &Database) -> Result<u64> {
    let work = |tx: Transaction| async move {
        let mut back = 0;
        for claim in claims::expired(&tx).await? {
            back += reclaim(&tx, &claim).await?;
        }
        Ok(back)
    };
    // A read first: expired claims are rare.
    let any_expired = |snapshot: Snapshot| async move { claims::any_expired(&snapshot).await };
    if !database.read(any_expired).await? {
        return Ok(0);
    }
    database.write_with(Isolation::ReadCommitted, work).await
}

/// Releases the items of a claim. Items with too many attempts become dead letters.
async fn reclaim(tx: &Transaction, claim: &ExpiredClaim) -> Result<u64, hob_database::Error> {
    runs::lock(tx, &claim.run).await?;
    let mut counts = CountChanges::default();
    for group in items::claimed(tx, claim, MAX_LOST_WORKERS).await? {
        counts.add(&group.step, &group.class, ItemState::Claimed, -group.items);
        counts.add(&group.step, &group.class, ItemState::Waiting, group.items - group.exhausted);
        counts.add(&group.step, FailureClass::Network.as_str(), ItemState::Quarantined, group.exhausted);
    }
    counts.write(tx, &claim.run).await?;
    let error = "the lease expired in every attempt: the item may crash its workers";
    items::quarantine_exhausted(tx, claim, MAX_LOST_WORKERS, FailureClass::Network, error).await?;
    let back = items::release_claimed(tx, claim).await?;
    claims::delete(tx, &claim.run, &[claim.claim]).await?;
    Ok(back)
}
