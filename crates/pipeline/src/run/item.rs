//! Items: one row each, with state, attempts and due time. Workers claim them in batches. A claim is a lease with a
//! number that fences the commit: an expired claim changes nothing.

mod claim;
mod commit;
mod progress;
mod stored_result;

use std::collections::BTreeMap;

use hob_database::{Database, Isolation, Transaction};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub(crate) use claim::{Claim, claim, reclaim_expired, renew};
pub(crate) use commit::{
    AttemptOutcome, FinishedAttempt, ResultVersion, THROUGHPUT_STEP, commit, delete_old_throughput,
};
use progress::CountChanges;
pub use progress::Progress;
pub(crate) use progress::progress;
pub(crate) use stored_result::StoredResult;

use crate::database::items::{self, NewItemRow};
use crate::database::runs;
use crate::error::Result;
use crate::plan::retry::FailureClass;
use crate::run::RunId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ItemState {
    /// Waits until it is due.
    Waiting,
    Claimed,
    Done,
    /// A dead letter, until it is replayed.
    Quarantined,
}

/// A claimed item.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Item {
    pub(crate) seq: i64,
    pub(crate) step: String,
    pub(crate) key: String,
    pub(crate) data: String,
    /// Including the current one.
    pub(crate) attempts: u32,
    /// Failure class of the last attempt; empty if there was none.
    pub(crate) class: String,
    /// Whether it follows from an unchanged item, so that its stored result is used.
    pub(crate) unchanged: bool,
}

/// An item to add.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewItem {
    pub(crate) step: String,
    pub(crate) key: String,
    pub(crate) data: String,
    /// Whether it follows from an unchanged item, so that its stored result is used.
    #[serde(skip)]
    pub(crate) unchanged: bool,
}

impl NewItem {
    pub(crate) fn new(step: &str, key: &str, data: &str) -> Self {
        Self { step: step.to_owned(), key: key.to_owned(), data: data.to_owned(), unchanged: false }
    }
}

/// An item of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = PipelineItem)]
pub struct ItemSummary {
    pub seq: i64,
    pub step: String,
    pub key: String,
    pub state: ItemState,
    pub attempts: u32,
    /// Due time in Unix milliseconds.
    pub due_at: i64,
    pub class: Option<FailureClass>,
    pub error: String,
}

/// Adds items. Step and key identify an item: an existing one is left unchanged. Locks the run first, as all transactions
/// that move items do, so that they cannot deadlock.
pub(crate) async fn add(tx: &Transaction, run: &RunId, items: &[NewItem]) -> Result<(), hob_database::Error> {
    if items.is_empty() {
        return Ok(());
    }
    let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let last = runs::reserve_item_numbers(tx, run, count).await?;
    let due_at = tx.now();
    let mut by_step: BTreeMap<&str, Vec<NewItemRow<'_>>> = BTreeMap::new();
    for (seq, item) in (last - count..).zip(items) {
        by_step.entry(&item.step).or_default().push(NewItemRow { run, seq, item, due_at });
    }
    let mut counts = CountChanges::default();
    for (step, rows) in by_step {
        let added = items::insert(tx, rows).await?;
        counts.add(step, "", ItemState::Waiting, i64::try_from(added).unwrap_or(i64::MAX));
    }
    counts.write(tx, run).await
}

/// Lets dead letters, all or those of a class, wait again.
pub(crate) async fn replay(database: &Database, run: &RunId, class: Option<FailureClass>) -> Result<u64> {
    let work = |tx: Transaction| async move {
        runs::lock(&tx, run).await?;
        let mut counts = CountChanges::default();
        for (step, class, items) in items::quarantined(&tx, run, class).await? {
            counts.add(&step, &class, ItemState::Quarantined, -items);
            counts.add(&step, &class, ItemState::Waiting, items);
        }
        counts.write(&tx, run).await?;
        Ok(items::requeue_quarantined(&tx, run, class).await?)
    };
    database.write_with(Isolation::ReadCommitted, work).await
}

hob_units::names!(ItemState { Waiting = "waiting", Claimed = "claimed", Done = "done", Quarantined = "quarantined" });

hob_database::column!(ItemState as text);
hob_database::column!(FailureClass as text);
