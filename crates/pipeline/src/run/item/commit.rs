//! What attempts came to: written in one transaction for many, each under the claim that it was made under.

use std::collections::BTreeMap;
use std::time::Duration;

use hob_database::{Database, Isolation, Transaction, UnixMs};

use super::{Item, ItemState, NewItem, Tally, add, stored_result};
use crate::database::items::{self, FailedItem};
use crate::database::{claims, outputs, results, runs, throughput};
use crate::error::Result;
use crate::plan::retry::Class;
use crate::run::RunId;

/// The steps of time in which finished items are counted.
pub(crate) const PACE_STEP: Duration = Duration::from_secs(30);

/// What an attempt came to.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    pub(crate) item: Item,
    pub(crate) claim: i64,
    pub(crate) begun_at: UnixMs,
    /// The HTTP status; 0 where there was none.
    pub(crate) status: u16,
    pub(crate) calls: u32,
    pub(crate) result: Outcome,
}

#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Done {
        output: Option<(String, String)>,
        follow: Vec<NewItem>,
        /// Whether the result is kept for a later run.
        keep: Option<Keep>,
    },
    Again {
        class: Class,
        error: String,
        after: Duration,
    },
    Quarantined {
        class: Class,
        error: String,
    },
    /// Not attempted after all.
    GivenBack,
}

/// Under what a result is kept.
#[derive(Clone, Debug)]
pub(crate) struct Keep {
    /// The step's definition, hashed.
    pub(crate) shape: String,
    /// The version that the API gave the answer; empty where it gave none.
    pub(crate) etag: String,
}

impl Outcome {
    /// The state that it leads to.
    fn state(&self) -> ItemState {
        match self {
            Outcome::Done { .. } => ItemState::Done,
            Outcome::Again { .. } | Outcome::GivenBack => ItemState::Waiting,
            Outcome::Quarantined { .. } => ItemState::Quarantined,
        }
    }
}

impl Finished {
    /// Why the item failed, as far as anybody knows.
    fn class(&self) -> &str {
        match &self.result {
            Outcome::Done { .. } => "",
            Outcome::Again { class, .. } | Outcome::Quarantined { class, .. } => class.as_str(),
            Outcome::GivenBack => &self.item.class,
        }
    }
}

/// Writes what attempts came to and ends the claims that are over with them, all of it or nothing. What was claimed
/// anew meanwhile is left alone, so that a result counts once. Returns how many counted.
pub(crate) async fn commit(
    database: &Database,
    run: &RunId,
    plan: &str,
    finished: &[Finished],
    over: &[i64],
) -> Result<u64> {
    let work = |tx: Transaction| async move {
        // The run's row first, as all do who move its items. Calls were made, whether or not their results count.
        runs::add_calls(&tx, run, finished.iter().map(|one| one.calls).sum()).await?;
        let mut counted = settle_alike(&tx, run, finished).await?;
        for one in finished {
            if settle_failed(&tx, run, one).await? {
                counted.push(one);
            }
        }
        let mut tally = Tally::default();
        for one in &counted {
            tally.add(&one.item.step, &one.item.class, ItemState::Claimed, -1);
            tally.add(&one.item.step, one.class(), one.result.state(), 1);
        }
        tally.write(&tx, run).await?;
        write_results(&tx, run, plan, &counted).await?;
        claims::delete(&tx, run, over).await?;
        Ok(u64::try_from(counted.len()).unwrap_or(u64::MAX))
    };
    database.write_with(Isolation::Committed, work).await
}

/// Marks what is done or given back, in few statements, and answers with those that were still held.
async fn settle_alike<'a>(
    tx: &Transaction,
    run: &RunId,
    finished: &'a [Finished],
) -> Result<Vec<&'a Finished>, hob_database::Error> {
    let (mut done, mut back) = (ByClaim::new(), ByClaim::new());
    for one in finished {
        let group = match one.result {
            Outcome::Done { .. } => &mut done,
            Outcome::GivenBack => &mut back,
            Outcome::Again { .. } | Outcome::Quarantined { .. } => continue,
        };
        group.entry(one.claim).or_default().insert(one.item.seq, one);
    }
    let mut counted = Vec::with_capacity(finished.len());
    for (claim, items) in done {
        let seqs: Vec<i64> = items.keys().copied().collect();
        let held = items::mark_done(tx, run, claim, &seqs).await?;
        counted.extend(held.iter().filter_map(|seq| items.get(seq)));
    }
    for (claim, items) in back {
        let seqs: Vec<i64> = items.keys().copied().collect();
        let held = items::give_back(tx, run, claim, &seqs).await?;
        counted.extend(held.iter().filter_map(|seq| items.get(seq)));
    }
    Ok(counted)
}

/// By claim and number of the item.
type ByClaim<'a> = BTreeMap<i64, BTreeMap<i64, &'a Finished>>;

async fn settle_failed(tx: &Transaction, run: &RunId, one: &Finished) -> Result<bool, hob_database::Error> {
    let (after, error) = match &one.result {
        Outcome::Done { .. } | Outcome::GivenBack => return Ok(false),
        Outcome::Again { error, after, .. } => (*after, error),
        Outcome::Quarantined { error, .. } => (Duration::ZERO, error),
    };
    let failed =
        FailedItem { state: one.result.state(), due_at: tx.now().plus(after), class: one.class(), error };
    items::mark_failed(tx, run, one.claim, one.item.seq, &failed).await
}

/// The attempts, the outputs, the items that follow and the results that are kept.
async fn write_results(
    tx: &Transaction,
    run: &RunId,
    plan: &str,
    counted: &[&Finished],
) -> Result<(), hob_database::Error> {
    let tried = counted.iter().filter(|one| !matches!(one.result, Outcome::GivenBack));
    let attempts: Vec<_> =
        tried.map(|one| (one.item.seq, one.claim, one.begun_at, one.status, one.class())).collect();
    count_pace(tx, run, attempts.len()).await?;
    results::insert_attempts(tx, run, attempts).await?;

    let mut lines = Vec::new();
    let mut follow_on = Vec::new();
    let mut kept = Vec::new();
    for one in counted {
        if let Outcome::Done { output, follow, keep } = &one.result {
            lines.extend(output.iter().map(|(sink, line)| (sink.as_str(), one.item.seq, line.as_str())));
            follow_on.extend(follow.iter().cloned());
            if let Some(keep) = keep {
                kept.push(stored_result::row(plan, &one.item, keep, output.as_ref(), follow));
            }
        }
    }
    outputs::insert(tx, run, lines).await?;
    results::put(tx, kept).await?;
    add(tx, run, &follow_on).await
}

async fn count_pace(tx: &Transaction, run: &RunId, items: usize) -> Result<(), hob_database::Error> {
    if items == 0 {
        return Ok(());
    }
    let step_ms = i64::try_from(PACE_STEP.as_millis()).unwrap_or(i64::MAX);
    throughput::add(tx, run, UnixMs(tx.now().0 / step_ms * step_ms), items).await
}

/// Forgets how fast runs were long ago.
pub(crate) async fn forget_pace(database: &Database, keep: Duration) -> Result<u64> {
    let work =
        |tx: Transaction| async move { Ok(throughput::delete_before(&tx, tx.now().minus(keep)).await?) };
    database.write_with(Isolation::Committed, work).await
}
