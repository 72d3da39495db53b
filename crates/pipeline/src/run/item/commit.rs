//! Commits finished attempts: many in one transaction, each fenced by its claim.

use std::collections::BTreeMap;
use std::time::Duration;

use hob_database::{Database, Isolation, Transaction, UnixMs};

use super::{CountChanges, Item, ItemState, NewItem, add, stored_result};
use crate::database::items::{self, FailedItem};
use crate::database::{claims, outputs, results, runs, throughput};
use crate::error::Result;
use crate::plan::retry::FailureClass;
use crate::run::RunId;

/// Resolution of the throughput chart.
pub(crate) const THROUGHPUT_STEP: Duration = Duration::from_secs(30);

/// An attempt with its outcome.
#[derive(Clone, Debug)]
pub(crate) struct FinishedAttempt {
    pub(crate) item: Item,
    pub(crate) claim: i64,
    pub(crate) begun_at: UnixMs,
    /// The HTTP status; 0 if there was no response.
    pub(crate) status: u16,
    pub(crate) calls: u32,
    pub(crate) outcome: AttemptOutcome,
}

#[derive(Clone, Debug)]
pub(crate) enum AttemptOutcome {
    Done {
        output: Option<(String, String)>,
        follow: Vec<NewItem>,
        /// Set if the result is stored for later runs.
        version: Option<ResultVersion>,
    },
    Retry {
        class: FailureClass,
        error: String,
        after: Duration,
    },
    Quarantined {
        class: FailureClass,
        error: String,
    },
    /// Not attempted.
    Released,
}

/// The version of a stored result.
#[derive(Clone, Debug)]
pub(crate) struct ResultVersion {
    /// Hash of the step's definition.
    pub(crate) step_hash: String,
    /// The ETag of the response; empty if it had none.
    pub(crate) etag: String,
}

impl AttemptOutcome {
    /// The state of the item afterwards.
    fn state(&self) -> ItemState {
        match self {
            AttemptOutcome::Done { .. } => ItemState::Done,
            AttemptOutcome::Retry { .. } | AttemptOutcome::Released => ItemState::Waiting,
            AttemptOutcome::Quarantined { .. } => ItemState::Quarantined,
        }
    }
}

impl FinishedAttempt {
    /// The failure class of the item afterwards; empty if it did not fail.
    fn class(&self) -> &str {
        match &self.outcome {
            AttemptOutcome::Done { .. } => "",
            AttemptOutcome::Retry { class, .. } | AttemptOutcome::Quarantined { class, .. } => class.as_str(),
            AttemptOutcome::Released => &self.item.class,
        }
    }
}

/// Commits attempts and deletes the claims that end with them, atomically. An attempt whose claim has expired changes
/// nothing, so that each result counts once. Returns how many counted.
pub(crate) async fn commit(
    database: &Database,
    run: &RunId,
    plan: &str,
    finished: &[FinishedAttempt],
    ended_claims: &[i64],
) -> Result<u64> {
    let work = |tx: Transaction| async move {
        // Locks the run first, as all transactions that move items do. Calls count even if their results do not.
        runs::add_calls(&tx, run, finished.iter().map(|attempt| attempt.calls).sum()).await?;
        let mut counted = record_done_and_released(&tx, run, finished).await?;
        for attempt in finished {
            if record_failed(&tx, run, attempt).await? {
                counted.push(attempt);
            }
        }
        let mut counts = CountChanges::default();
        for attempt in &counted {
            counts.add(&attempt.item.step, &attempt.item.class, ItemState::Claimed, -1);
            counts.add(&attempt.item.step, attempt.class(), attempt.outcome.state(), 1);
        }
        counts.write(&tx, run).await?;
        write_results(&tx, run, plan, &counted).await?;
        claims::delete(&tx, run, ended_claims).await?;
        Ok(u64::try_from(counted.len()).unwrap_or(u64::MAX))
    };
    database.write_with(Isolation::ReadCommitted, work).await
}

/// Marks items as done or waiting, in few statements. Returns the attempts whose claim still held the item.
async fn record_done_and_released<'a>(
    tx: &Transaction,
    run: &RunId,
    finished: &'a [FinishedAttempt],
) -> Result<Vec<&'a FinishedAttempt>, hob_database::Error> {
    let (mut done, mut back) = (ByClaim::new(), ByClaim::new());
    for attempt in finished {
        let group = match attempt.outcome {
            AttemptOutcome::Done { .. } => &mut done,
            AttemptOutcome::Released => &mut back,
            AttemptOutcome::Retry { .. } | AttemptOutcome::Quarantined { .. } => continue,
        };
        group.entry(attempt.claim).or_default().insert(attempt.item.seq, attempt);
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

/// Attempts by claim and number of the item.
type ByClaim<'a> = BTreeMap<i64, BTreeMap<i64, &'a FinishedAttempt>>;

async fn record_failed(
    tx: &Transaction,
    run: &RunId,
    attempt: &FinishedAttempt,
) -> Result<bool, hob_database::Error> {
    let (after, error) = match &attempt.outcome {
        AttemptOutcome::Done { .. } | AttemptOutcome::Released => return Ok(false),
        AttemptOutcome::Retry { error, after, .. } => (*after, error),
        AttemptOutcome::Quarantined { error, .. } => (Duration::ZERO, error),
    };
    let failed = FailedItem {
        state: attempt.outcome.state(),
        due_at: tx.now().plus(after),
        class: attempt.class(),
        error,
    };
    items::mark_failed(tx, run, attempt.claim, attempt.item.seq, &failed).await
}

/// Writes the attempts, outputs, following items and stored results.
async fn write_results(
    tx: &Transaction,
    run: &RunId,
    plan: &str,
    counted: &[&FinishedAttempt],
) -> Result<(), hob_database::Error> {
    let tried = counted.iter().filter(|attempt| !matches!(attempt.outcome, AttemptOutcome::Released));
    let attempts: Vec<_> = tried
        .map(|attempt| (attempt.item.seq, attempt.claim, attempt.begun_at, attempt.status, attempt.class()))
        .collect();
    count_throughput(tx, run, attempts.len()).await?;
    results::insert_attempts(tx, run, attempts).await?;

    let mut lines = Vec::new();
    let mut follow_on = Vec::new();
    let mut stored = Vec::new();
    for attempt in counted {
        if let AttemptOutcome::Done { output, follow, version } = &attempt.outcome {
            lines.extend(output.iter().map(|(sink, line)| (sink.as_str(), attempt.item.seq, line.as_str())));
            follow_on.extend(follow.iter().cloned());
            if let Some(version) = version {
                stored.push(stored_result::row(plan, &attempt.item, version, output.as_ref(), follow));
            }
        }
    }
    outputs::insert(tx, run, lines).await?;
    results::put(tx, stored).await?;
    add(tx, run, &follow_on).await
}

async fn count_throughput(tx: &Transaction, run: &RunId, items: usize) -> Result<(), hob_database::Error> {
    if items == 0 {
        return Ok(());
    }
    let step_ms = i64::try_from(THROUGHPUT_STEP.as_millis()).unwrap_or(i64::MAX);
    throughput::add(tx, run, UnixMs(tx.now().0 / step_ms * step_ms), items).await
}

/// Deletes throughput older than `keep`.
pub(crate) async fn delete_old_throughput(database: &Database, version: Duration) -> Result<u64> {
    let work =
        |tx: Transaction| async move { Ok(throughput::delete_before(&tx, tx.now().minus(version)).await?) };
    database.write_with(Isolation::ReadCommitted, work).await
}
