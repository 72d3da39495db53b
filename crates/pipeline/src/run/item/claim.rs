//! Claims: items that one worker holds under one lease, and what becomes of them when it is not heard of again.

use std::time::Duration;

use hob_database::{Database, Isolation, Snapshot, Transaction};

use super::{Item, ItemState, Tally};
use crate::database::claims::{self, ExpiredClaim};
use crate::database::{items, runs};
use crate::error::Result;
use crate::plan::retry::Class;
use crate::run::RunId;

/// An item that its workers did not survive so often is set aside.
const MOST_DEATHS: u32 = 20;

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
    most: u32,
    lease: Duration,
) -> Result<Option<Claim>> {
    let work = |tx: Transaction| async move {
        // This row is also what claims of one run queue up at.
        let Some(number) = runs::next_claim_number(&tx, run).await? else { return Ok(None) };
        let mut items = items::claim_due(&tx, run, number, most).await?;
        items.sort_unstable_by_key(|item| item.seq);
        let (Some(first), Some(last)) = (items.first(), items.last()) else { return Ok(None) };
        claims::insert(&tx, run, number, worker, (first.seq, last.seq), lease).await?;
        let mut tally = Tally::default();
        for item in &items {
            tally.add(&item.step, &item.class, ItemState::Waiting, -1);
            tally.add(&item.step, &item.class, ItemState::Claimed, 1);
        }
        tally.write(&tx, run).await?;
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
pub(crate) async fn reap(database: &Database) -> Result<u64> {
    let work = |tx: Transaction| async move {
        let mut back = 0;
        for claim in claims::expired(&tx).await? {
            back += take_back(&tx, &claim).await?;
        }
        Ok(back)
    };
    // A look first, without a write: there is hardly ever one.
    let look = |snapshot: Snapshot| async move { claims::any_expired(&snapshot).await };
    if !database.read(look).await? {
        return Ok(0);
    }
    database.write_with(Isolation::Committed, work).await
}

/// Items come back, or are set aside where too many workers have not survived them.
async fn take_back(tx: &Transaction, claim: &ExpiredClaim) -> Result<u64, hob_database::Error> {
    runs::lock(tx, &claim.run).await?;
    let mut tally = Tally::default();
    for group in items::claimed(tx, claim, MOST_DEATHS).await? {
        tally.add(&group.step, &group.class, ItemState::Claimed, -group.items);
        tally.add(&group.step, &group.class, ItemState::Waiting, group.items - group.exhausted);
        tally.add(&group.step, Class::Network.as_str(), ItemState::Quarantined, group.exhausted);
    }
    tally.write(tx, &claim.run).await?;
    let error = "none of the workers that tried it was heard of again";
    items::quarantine_exhausted(tx, claim, MOST_DEATHS, Class::Network, error).await?;
    let back = items::release_claimed(tx, claim).await?;
    claims::delete(tx, &claim.run, &[claim.claim]).await?;
    Ok(back)
}
