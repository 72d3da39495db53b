//! `pipeline_run`: one row per run. A transaction that moves items of a run locks this row first.

use hob_database::{
    Database, Keyset, Page, PageRequest, PerDialect, Query, Read, Signal, Transaction, UnixMs, ValueKind,
    from_row, sql,
};

use super::Result;
use crate::plan::{Plan, PlanName};
use crate::run::{Run, RunId, RunState};

from_row!(Run { id, plan, text, state, version, seeded_to, calls, trouble, started_at, changed_at });

/// Sent when the state of a run has changed.
pub(crate) const CHANGED: Signal = Signal("pipeline.runs");

const NEWEST_FIRST: Keyset = Keyset::descending(&[("started_at", ValueKind::Int), ("id", ValueKind::Text)]);

/// Inserts a running run, unless the id is taken.
pub(crate) async fn insert(tx: &Transaction, id: &RunId, plan: &Plan) -> Result<()> {
    let insert =
        sql("INSERT INTO pipeline_run (id, plan, text, state, version, seeded_to, items, claims, calls,
                                                trouble, started_at, changed_at)
                      VALUES ($1, $2, $3, $4, 1, 0, 0, 0, 0, '', $5, $5) ON CONFLICT DO NOTHING");
    let insert = insert.bind(id).bind(&plan.name).bind(&plan.text).bind(RunState::Running);
    tx.execute(insert.bind(tx.now())).await?;
    tx.signal(CHANGED);
    Ok(())
}

pub(crate) async fn find(on: &impl Read, id: &RunId) -> Result<Option<Run>> {
    on.optional(by_id(id)).await
}

/// A run that is known to exist.
pub(crate) async fn get(on: &impl Read, id: &RunId) -> Result<Run> {
    on.one(by_id(id)).await
}

fn by_id(id: &RunId) -> Query<Run> {
    sql("SELECT id, plan, text, state, version, seeded_to, calls, trouble, started_at, changed_at
         FROM pipeline_run WHERE id = $1")
    .bind(id)
}

/// Locks the row of a run until the transaction ends.
pub(crate) async fn lock(tx: &Transaction, id: &RunId) -> Result<()> {
    const LOCK: PerDialect = PerDialect {
        sqlite: "SELECT version FROM pipeline_run WHERE id = $1",
        postgres: "SELECT version FROM pipeline_run WHERE id = $1 FOR UPDATE",
    };
    tx.optional::<(i64,)>(sql(LOCK).bind(id)).await?;
    Ok(())
}

/// Whether a run is running, or a worker still holds items of one.
pub(crate) async fn any_work(on: &impl Read) -> Result<bool> {
    let any: Query<(bool,)> = sql("SELECT EXISTS (SELECT 1 FROM pipeline_run WHERE state = 'running')
                                       OR EXISTS (SELECT 1 FROM pipeline_claim)");
    Ok(on.one(any).await?.0)
}

/// The oldest 1,000 runs that are running.
pub(crate) async fn running(on: &impl Read) -> Result<Vec<RunId>> {
    let list = sql("SELECT id FROM pipeline_run WHERE state = $1 ORDER BY started_at, id LIMIT 1000");
    let rows: Vec<(RunId,)> = on.all(list.bind(RunState::Running)).await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

/// The newest 200 runs that are paused, or that ended after a time.
pub(crate) async fn paused_or_ended_after(on: &impl Read, after: UnixMs) -> Result<Vec<Run>> {
    let list = sql("SELECT id, plan, text, state, version, seeded_to, calls, trouble, started_at, changed_at
                    FROM pipeline_run WHERE state = $1 OR (state <> $2 AND changed_at > $3)
                    ORDER BY changed_at DESC LIMIT 200");
    on.all(list.bind(RunState::Paused).bind(RunState::Running).bind(after)).await
}

/// Runs that are not archived, newest first.
pub(crate) async fn page(on: &impl Read, request: &PageRequest) -> Result<Page<Run>> {
    let list = sql("SELECT id, plan, text, state, version, seeded_to, calls, trouble, started_at, changed_at
                    FROM pipeline_run WHERE state <> $1");
    on.page(list.bind(RunState::Archived), &NEWEST_FIRST, request).await
}

/// The newest run of a plan, in any state.
pub(crate) async fn newest(on: &impl Read, plan: &PlanName) -> Result<Option<Run>> {
    let find = sql("SELECT id, plan, text, state, version, seeded_to, calls, trouble, started_at, changed_at
                    FROM pipeline_run WHERE plan = $1 ORDER BY started_at DESC, id DESC LIMIT 1");
    on.optional(find.bind(plan)).await
}

pub(crate) async fn set_state(tx: &Transaction, id: &RunId, state: RunState) -> Result<()> {
    let set = sql("UPDATE pipeline_run SET state = $2, version = version + 1, changed_at = $3, trouble = ''
                   WHERE id = $1");
    tx.execute(set.bind(id).bind(state).bind(tx.now())).await?;
    tx.signal(CHANGED);
    Ok(())
}

/// Records what blocks a run; empty if nothing does.
pub(crate) async fn set_trouble(database: &Database, id: &RunId, trouble: &str) -> Result<()> {
    let set = sql("UPDATE pipeline_run SET trouble = $2 WHERE id = $1 AND trouble <> $2");
    database.execute(set.bind(id).bind(trouble)).await?;
    Ok(())
}

/// Records how much of the source became items. `false` if another node has done so since `from` was read.
pub(crate) async fn advance_seed(tx: &Transaction, id: &RunId, from: i64, to: i64) -> Result<bool> {
    let advance = sql("UPDATE pipeline_run SET seeded_to = $3 WHERE id = $1 AND seeded_to = $2");
    Ok(tx.execute(advance.bind(id).bind(from).bind(to)).await? == 1)
}

/// Reserves numbers for new items, locks the run, and returns the last number.
pub(crate) async fn reserve_item_numbers(tx: &Transaction, id: &RunId, count: i64) -> Result<i64> {
    let reserve = sql("UPDATE pipeline_run SET items = items + $2 WHERE id = $1 RETURNING items");
    let (last,) = tx.one(reserve.bind(id).bind(count)).await?;
    Ok(last)
}

/// The number of the next claim; locks the run. `None` if the run is not running.
pub(crate) async fn next_claim_number(tx: &Transaction, id: &RunId) -> Result<Option<i64>> {
    let next = sql(
        "UPDATE pipeline_run SET claims = claims + 1 WHERE id = $1 AND state = 'running' RETURNING claims",
    );
    Ok(tx.optional::<(i64,)>(next.bind(id)).await?.map(|(number,)| number))
}

/// Counts calls that were made, and locks the run.
pub(crate) async fn add_calls(tx: &Transaction, id: &RunId, calls: u32) -> Result<()> {
    let add = sql("UPDATE pipeline_run SET calls = calls + $2 WHERE id = $1");
    tx.execute(add.bind(id).bind(calls)).await?;
    Ok(())
}

/// A running run that has no items to try and whose results are all written.
macro_rules! nothing_left {
    () => {
        "id = $1 AND state = 'running' AND seeded_to = -1
         AND NOT EXISTS (SELECT 1 FROM pipeline_item WHERE run = $1 AND state = 'waiting')
         AND NOT EXISTS (SELECT 1 FROM pipeline_claim WHERE run = $1)
         AND NOT EXISTS (SELECT 1 FROM pipeline_output WHERE run = $1)"
    };
}

pub(crate) async fn has_nothing_left(on: &impl Read, id: &RunId) -> Result<bool> {
    let find = sql(concat!("SELECT seeded_to FROM pipeline_run WHERE ", nothing_left!()));
    Ok(on.optional::<(i64,)>(find.bind(id)).await?.is_some())
}

/// Completes a run that has nothing left to do; `false` if it has. A single statement: no commit that adds items can
/// happen between the check and the change.
pub(crate) async fn complete(tx: &Transaction, id: &RunId) -> Result<bool> {
    let complete = sql(concat!(
        "UPDATE pipeline_run SET state = 'completed', version = version + 1, changed_at = $2, trouble = ''
         WHERE ",
        nothing_left!()
    ));
    tx.signal(CHANGED);
    Ok(tx.execute(complete.bind(id).bind(tx.now())).await? == 1)
}

/// Whether another run of the same plan has precedence for the plan's output links: a run with all items done comes
/// before one with dead letters, and otherwise the newer run comes first.
pub(crate) async fn is_outranked(on: &impl Read, id: &RunId) -> Result<bool> {
    macro_rules! all_done {
        ($run:literal) => {
            concat!(
                "NOT EXISTS (SELECT 1 FROM pipeline_tally WHERE run = ",
                $run,
                ".id AND state <> 'done' AND items > 0)"
            )
        };
    }
    let find = sql(concat!(
        "SELECT other.started_at FROM pipeline_run mine
         JOIN pipeline_run other ON other.plan = mine.plan AND other.id <> mine.id
         WHERE mine.id = $1 AND other.seeded_to = -1
         AND (other.started_at > mine.started_at OR NOT (",
        all_done!("mine"),
        ")) AND (other.state IN ('completed', 'archived') AND ",
        all_done!("other"),
        " OR other.state = 'completed' AND other.started_at > mine.started_at AND NOT (",
        all_done!("mine"),
        ")) LIMIT 1"
    ));
    Ok(on.optional::<(i64,)>(find.bind(id)).await?.is_some())
}

pub(crate) async fn archived_before(tx: &Transaction, before: UnixMs) -> Result<Option<RunId>> {
    let find = sql("SELECT id FROM pipeline_run WHERE state = $1 AND changed_at < $2 LIMIT 1");
    let found: Option<(RunId,)> = tx.optional(find.bind(RunState::Archived).bind(before)).await?;
    Ok(found.map(|(id,)| id))
}

/// Deletes a run and all of its rows in other tables.
pub(crate) async fn delete(tx: &Transaction, id: &RunId) -> Result<()> {
    for delete in [
        "DELETE FROM pipeline_item WHERE run = $1",
        "DELETE FROM pipeline_tally WHERE run = $1",
        "DELETE FROM pipeline_pace WHERE run = $1",
        "DELETE FROM pipeline_claim WHERE run = $1",
        "DELETE FROM pipeline_attempt WHERE run = $1",
        "DELETE FROM pipeline_output WHERE run = $1",
        "DELETE FROM pipeline_sink WHERE run = $1",
        "DELETE FROM pipeline_run WHERE id = $1",
    ] {
        tx.execute(sql(delete).bind(id)).await?;
    }
    Ok(())
}
