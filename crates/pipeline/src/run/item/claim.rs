//! Claims: items that one worker holds under one lease, and what becomes of them when it is not heard of again.

use std::time::Duration;

use hob_database::{Database, Isolation, Snapshot, Transaction};

use super::{CountChanges, Item, ItemState};
use crate::database::claims::{self, ExpiredClaim};
use crate::database::{items, runs};
use crate::error::Result;
use crate::plan::retry::FailureClass;
use crate::run::RunId;

/// An item that its workers did not survive so often is set aside.
const MAX_LOST_WORKERS: u32 = 20;

/// Items that one worker holds under one lease.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) number: i64,
    pub(crate) items: Vec<Item>,
}

/// Claims items that are due, for as long as the lease is renewed; `None` if there are none.
pub(crate) async fn claim(
    database: &Database,
    run: &RunId,
    worker: &str,
    limit: u32,
    lease: Duration,
) -> Result<Option<Claim>> {
    let work = |tx: Transaction| async move {
        // This row is also what claims of one run queue up at.
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
    // Nothing is due most of the time when a run waits, and a look costs less than a write.
    if !items::has_waiting(database, run).await? {
        return Ok(None);
    }
    database.write_with(Isolation::Committed, work).await
}

/// Holds a worker's claims for longer.
pub(crate) async fn renew(database: &Database, run: &RunId, worker: &str, lease: Duration) -> Result<()> {
    let work = |tx: Transaction| async move { Ok(claims::renew(&tx, run, worker, lease).await?) };
    database.write_with(Isolation::Committed, work).await
}

/// Takes back what dead workers hold. Returns how many items come back.
pub(crate) async fn reclaim_expired(database: &Database) -> Result<u64> {
    let work = |tx: Transaction| async move {
        let mut back = 0;
        for claim in claims::expired(&tx).await? {
            back += reclaim(&tx, &claim).await?;
        }
        Ok(back)
    };
    // A look first, without a write: there is hardly ever one.
    let any_expired = |snapshot: Snapshot| async move { claims::any_expired(&snapshot).await };
    if !database.read(any_expired).await? {
        return Ok(0);
    }
    database.write_with(Isolation::Committed, work).await
}

/// Items come back, or are set aside where too many workers have not survived them.
async fn reclaim(tx: &Transaction, claim: &ExpiredClaim) -> Result<u64, hob_database::Error> {
    runs::lock(tx, &claim.run).await?;
    let mut counts = CountChanges::default();
    for group in items::claimed(tx, claim, MAX_LOST_WORKERS).await? {
        counts.add(&group.step, &group.class, ItemState::Claimed, -group.items);
        counts.add(&group.step, &group.class, ItemState::Waiting, group.items - group.exhausted);
        counts.add(&group.step, FailureClass::Network.as_str(), ItemState::Quarantined, group.exhausted);
    }
    counts.write(tx, &claim.run).await?;
    let error = "none of the workers that tried it was heard of again";
    items::quarantine_exhausted(tx, claim, MAX_LOST_WORKERS, FailureClass::Network, error).await?;
    let back = items::release_claimed(tx, claim).await?;
    claims::delete(tx, &claim.run, &[claim.claim]).await?;
    Ok(back)
}
