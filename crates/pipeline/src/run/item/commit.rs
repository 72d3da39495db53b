//! What attempts came to: written in one transaction for many, each under the claim that it was made under.

use std::collections::BTreeMap;
use std::time::Duration;

use hob_database::{Database, Isolation, Read as _, Transaction, UnixMs, sql};

use super::{Item, ItemState, NewItem, Tally, add, kept};
use crate::error::Result;
use crate::plan::retry::Class;
use crate::run::RunId;

/// The steps of time in which finished items are counted.
pub(crate) const PACE_STEP: Duration = Duration::from_secs(30);

/// Items of one statement. SQLite goes through all placeholders of a list for each that is bound.
const AT_ONCE: usize = 256;

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
        let calls: u32 = finished.iter().map(|one| one.calls).sum();
        let count = sql("UPDATE pipeline_run SET calls = calls + $2 WHERE id = $1");
        tx.execute(count.bind(run).bind(calls)).await?;
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
        if !over.is_empty() {
            let end = sql("DELETE FROM pipeline_claim WHERE run = $1 AND claim IN ($2...)");
            tx.execute(end.bind(run).bind_list(over.iter().copied())).await?;
        }
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
    const DONE: &str = "UPDATE pipeline_item SET state = 'done', class = '', error = '', data = ''
        WHERE run = $1 AND claim = $2 AND state = 'claimed' AND seq IN ($3...) RETURNING seq";
    const BACK: &str = "UPDATE pipeline_item SET state = 'waiting', attempts = attempts - 1, claim = 0
        WHERE run = $1 AND claim = $2 AND state = 'claimed' AND seq IN ($3...) RETURNING seq";
    let mut alike: BTreeMap<(&'static str, i64), BTreeMap<i64, &Finished>> = BTreeMap::new();
    for one in finished {
        let statement = match one.result {
            Outcome::Done { .. } => DONE,
            Outcome::GivenBack => BACK,
            Outcome::Again { .. } | Outcome::Quarantined { .. } => continue,
        };
        alike.entry((statement, one.claim)).or_default().insert(one.item.seq, one);
    }
    let mut counted = Vec::with_capacity(finished.len());
    for ((statement, claim), items) in alike {
        let seqs: Vec<i64> = items.keys().copied().collect();
        for part in seqs.chunks(AT_ONCE) {
            let settle = sql(statement).bind(run).bind(claim).bind_list(part.iter().copied());
            let held: Vec<(i64,)> = tx.all(settle).await?;
            counted.extend(held.into_iter().filter_map(|(seq,)| items.get(&seq)));
        }
    }
    Ok(counted)
}

async fn settle_failed(tx: &Transaction, run: &RunId, one: &Finished) -> Result<bool, hob_database::Error> {
    let (after, error) = match &one.result {
        Outcome::Done { .. } | Outcome::GivenBack => return Ok(false),
        Outcome::Again { error, after, .. } => (*after, error),
        Outcome::Quarantined { error, .. } => (Duration::ZERO, error),
    };
    let change = sql("UPDATE pipeline_item SET state = $4, due_at = $5, class = $6, error = $7, claim = 0
                      WHERE run = $1 AND seq = $2 AND claim = $3 AND state = 'claimed'");
    let change = change.bind(run).bind(one.item.seq).bind(one.claim).bind(one.result.state());
    Ok(tx.execute(change.bind(tx.now().plus(after)).bind(one.class()).bind(error.as_str())).await? == 1)
}

/// The attempts, the outputs, the items that follow and the results that are kept.
async fn write_results(
    tx: &Transaction,
    run: &RunId,
    plan: &str,
    counted: &[&Finished],
) -> Result<(), hob_database::Error> {
    let now = tx.now();
    let tried = counted.iter().filter(|one| !matches!(one.result, Outcome::GivenBack));
    let attempts: Vec<_> =
        tried.map(|one| (run, one.item.seq, one.claim, one.begun_at, now, one.status, one.class())).collect();
    count_pace(tx, run, attempts.len()).await?;
    let head = "INSERT INTO pipeline_attempt (run, seq, claim, begun_at, ended_at, status, class)";
    tx.insert_all(head, attempts, "ON CONFLICT DO NOTHING").await?;

    let mut outputs = Vec::new();
    let mut follow_on = Vec::new();
    let mut kept = Vec::new();
    for one in counted {
        if let Outcome::Done { output, follow, keep } = &one.result {
            outputs.extend(output.iter().map(|(sink, line)| (run, sink, one.item.seq, line)));
            follow_on.extend(follow.iter().cloned());
            if let Some(keep) = keep {
                kept.push(kept::row(plan, &one.item, keep, output.as_ref(), follow));
            }
        }
    }
    tx.insert_all("INSERT INTO pipeline_output (run, sink, seq, line)", outputs, "ON CONFLICT DO NOTHING")
        .await?;
    kept::write(tx, kept).await?;
    add(tx, run, &follow_on).await
}

async fn count_pace(tx: &Transaction, run: &RunId, items: usize) -> Result<(), hob_database::Error> {
    if items == 0 {
        return Ok(());
    }
    let count = sql("INSERT INTO pipeline_pace (run, at, items) VALUES ($1, $2, $3)
                     ON CONFLICT (run, at) DO UPDATE SET items = pipeline_pace.items + excluded.items");
    let step_ms = i64::try_from(PACE_STEP.as_millis()).unwrap_or(i64::MAX);
    tx.execute(count.bind(run).bind(tx.now().0 / step_ms * step_ms).bind(items)).await?;
    Ok(())
}

/// How many items were tried in each step of time since then.
pub(crate) async fn pace(database: &Database, run: &RunId, since: UnixMs) -> Result<Vec<(UnixMs, u64)>> {
    let read = sql("SELECT at, items FROM pipeline_pace WHERE run = $1 AND at >= $2 ORDER BY at");
    Ok(database.all(read.bind(run).bind(since)).await?)
}

/// Forgets how fast runs were long ago.
pub(crate) async fn forget_pace(database: &Database, keep: Duration) -> Result<u64> {
    database
        .write_with(Isolation::Committed, |tx| async move {
            let forget = sql("DELETE FROM pipeline_pace WHERE at < $1");
            Ok(tx.execute(forget.bind(tx.now().minus(keep))).await?)
        })
        .await
}
