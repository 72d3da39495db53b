//! The tables `load_run` and `load_report`.

use hob_database::{
    Database, Keyset, Page, PageRequest, Query, Read, Signal, Transaction, UnixMs, ValueKind, sql,
};

use super::Result;
use crate::keys::TestId;
use crate::plan::catalog::PlanId;
use crate::run::item::{RunFigures, RunItem};
use crate::run::lifecycle::NewRun;
use crate::run::views::Progress;
use crate::run::{Run, RunState};

/// Sent when a run was added to the queue.
pub(crate) const QUEUED: Signal = Signal("load.runs");

const NEWEST_FIRST: Keyset = Keyset::descending(&[("queued_at", ValueKind::Int), ("id", ValueKind::Text)]);
const ACTIVE: [RunState; 4] = [RunState::Starting, RunState::Running, RunState::Paused, RunState::Stopping];

pub(crate) async fn find(source: &impl Read, id: &TestId) -> Result<Option<Run>> {
    source.optional(sql("SELECT * FROM load_run WHERE id = $1").bind(id)).await
}

pub(crate) async fn insert(
    tx: &Transaction,
    run: &NewRun,
    plan_version: u32,
    seed: u32,
    rank: i64,
) -> Result<()> {
    let insert = sql(
        "INSERT INTO load_run (id, plan_id, plan_version, run_type, priority, max_users, target_users, runners, seed,
             state, message, fence, epoch, lease_until, rank, queued_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'In the queue', 0, 0, 0, $11, $12)",
    );
    let insert = insert.bind(&run.id).bind(run.plan_id).bind(plan_version).bind(run.run_type.as_str());
    let insert = insert.bind(run.priority).bind(run.max_users).bind(run.target_users);
    let insert = insert.bind(run.runners).bind(seed);
    tx.execute(insert.bind(RunState::Pending).bind(rank).bind(tx.now())).await?;
    tx.signal(QUEUED);
    Ok(())
}

/// Whether a run is in the queue or active.
pub(crate) async fn any_unfinished(on: &impl Read) -> Result<bool> {
    let any: Query<(bool,)> = sql("SELECT EXISTS (SELECT 1 FROM load_run WHERE state IN ($1...))");
    let states = ACTIVE.into_iter().chain([RunState::Pending]);
    Ok(on.one(any.bind_list(states)).await?.0)
}

/// The run at the head of the queue.
pub(crate) async fn first_pending(tx: &Transaction) -> Result<Option<Run>> {
    let select = sql("SELECT * FROM load_run WHERE state = $1 ORDER BY rank, id LIMIT 1");
    tx.optional(select.bind(RunState::Pending)).await
}

/// Gives a run to a node. The new fence is also the epoch of the runners that join.
pub(crate) async fn set_claimed(
    tx: &Transaction,
    id: &TestId,
    state: RunState,
    node: &str,
    lease_until: UnixMs,
) -> Result<()> {
    let update = sql("UPDATE load_run SET state = $2, holder = $3, fence = fence + 1, epoch = fence + 1,
                          lease_until = $4, message = 'Gathering runners', ending = NULL WHERE id = $1");
    tx.execute(update.bind(id).bind(state).bind(node).bind(lease_until)).await?;
    Ok(())
}

/// An active run whose coordinator did not renew its lease.
pub(crate) async fn first_expired(tx: &Transaction) -> Result<Option<Run>> {
    let select = sql("SELECT * FROM load_run WHERE lease_until < $1 AND state IN ($2...) LIMIT 1");
    tx.optional(select.bind(tx.now()).bind_list(ACTIVE)).await
}

pub(crate) async fn set_requeued(tx: &Transaction, id: &TestId, state: RunState) -> Result<()> {
    let update = sql("UPDATE load_run SET state = $2, holder = NULL, message = 'In the queue again'
                      WHERE id = $1");
    tx.execute(update.bind(id).bind(state)).await?;
    Ok(())
}

/// Replaces the coordinator of a run. The higher fence prevents the previous coordinator from writing.
pub(crate) async fn set_coordinator(
    tx: &Transaction,
    id: &TestId,
    node: &str,
    lease_until: UnixMs,
) -> Result<()> {
    let update = sql("UPDATE load_run SET holder = $2, fence = fence + 1, lease_until = $3 WHERE id = $1");
    tx.execute(update.bind(id).bind(node).bind(lease_until)).await?;
    Ok(())
}

/// Returns `false` when another node coordinates the run.
pub(crate) async fn renew_lease(
    tx: &Transaction,
    id: &TestId,
    fence: u64,
    lease_until: UnixMs,
) -> Result<bool> {
    let update = sql("UPDATE load_run SET lease_until = $3 WHERE id = $1 AND fence = $2");
    Ok(tx.execute(update.bind(id).bind(fence).bind(lease_until)).await? > 0)
}

pub(crate) async fn set_state(
    tx: &Transaction,
    id: &TestId,
    state: RunState,
    ending: Option<RunState>,
    message: &str,
) -> Result<()> {
    let ended_at = state.is_final().then(|| tx.now());
    let update =
        sql("UPDATE load_run SET state = $2, ending = $3, message = $4, ended_at = $5 WHERE id = $1");
    tx.execute(update.bind(id).bind(state).bind(ending).bind(message).bind(ended_at)).await?;
    Ok(())
}

pub(crate) async fn set_start(tx: &Transaction, id: &TestId, start_at: UnixMs) -> Result<()> {
    tx.execute(sql("UPDATE load_run SET start_at = $2 WHERE id = $1").bind(id).bind(start_at)).await?;
    Ok(())
}

/// Stores how far a run came.
pub(crate) async fn set_progress(tx: &Transaction, id: &TestId, progress: Progress) -> Result<()> {
    let update = sql("UPDATE load_run SET target_users = $2, progress = $3 WHERE id = $1");
    tx.execute(update.bind(id).bind(progress.target_users).bind(progress.percent)).await?;
    Ok(())
}

/// A report as JSON, with its key figures.
pub(crate) async fn insert_report(
    tx: &Transaction,
    id: &TestId,
    report: &str,
    figures: Option<RunFigures>,
) -> Result<()> {
    let insert = sql("INSERT INTO load_report (run_id, report, requests, failed, rate, p95)
                      VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING");
    let insert = insert.bind(id).bind(report).bind(figures.map(|figures| figures.requests));
    let insert = insert.bind(figures.map(|figures| figures.failed)).bind(figures.map(|figures| figures.rate));
    tx.execute(insert.bind(figures.map(|figures| figures.p95))).await?;
    Ok(())
}

/// The report of a run as JSON.
pub(crate) async fn report(database: &Database, id: &TestId) -> Result<Option<String>> {
    let select = sql("SELECT report FROM load_report WHERE run_id = $1");
    let found: Option<(String,)> = database.optional(select.bind(id)).await?;
    Ok(found.map(|(report,)| report))
}

/// The queue, in the order in which its runs start.
pub(crate) async fn pending(database: &Database) -> Result<Vec<Run>> {
    let select = sql("SELECT * FROM load_run WHERE state = $1 ORDER BY rank, id LIMIT 10000");
    database.all(select.bind(RunState::Pending)).await
}

/// The runs that have a coordinator.
pub(crate) async fn active(database: &Database) -> Result<Vec<Run>> {
    database.all(sql("SELECT * FROM load_run WHERE state IN ($1...) LIMIT 1000").bind_list(ACTIVE)).await
}

/// The newest of the runs that ended after `since`.
pub(crate) async fn ended(database: &Database, since: UnixMs) -> Result<Vec<Run>> {
    let select = sql("SELECT * FROM load_run WHERE ended_at > $1 ORDER BY ended_at DESC LIMIT 1000");
    database.all(select.bind(since)).await
}

/// Runs of several runners that have not started yet.
pub(crate) async fn awaiting_runners(database: &Database) -> Result<Vec<Run>> {
    let select = sql("SELECT * FROM load_run WHERE state = $1 AND runners > 1 ORDER BY rank LIMIT 10");
    database.all(select.bind(RunState::Starting)).await
}

/// Selects runs with what a list shows. From a subquery, so that the columns of a page have unambiguous names.
macro_rules! select_items {
    ($condition:literal) => {
        concat!(
            "SELECT * FROM (
                 SELECT load_run.*, load_plan.name AS plan_name, requests, failed, rate, p95,
                     (SELECT COUNT(*) FROM load_runner
                      WHERE run_id = load_run.id AND epoch = load_run.epoch) AS runners_joined
                 FROM load_run JOIN load_plan ON load_plan.id = plan_id
                 LEFT JOIN load_report ON run_id = load_run.id) AS items WHERE ",
            $condition
        )
    };
}

pub(crate) async fn find_item(database: &Database, id: &TestId) -> Result<Option<RunItem>> {
    database.optional(sql(select_items!("id = $1")).bind(id)).await
}

pub(crate) async fn page_of_items(
    database: &Database,
    plan: Option<PlanId>,
    request: &PageRequest,
) -> Result<Page<RunItem>> {
    let select = match plan {
        Some(plan) => sql(select_items!("plan_id = $1")).bind(plan),
        None => sql(select_items!("TRUE")),
    };
    database.page(select, &NEWEST_FIRST, request).await
}

pub(crate) async fn page(
    database: &Database,
    plan: Option<PlanId>,
    request: &PageRequest,
) -> Result<Page<Run>> {
    let select = match plan {
        Some(plan) => sql("SELECT * FROM load_run WHERE plan_id = $1").bind(plan),
        None => sql("SELECT * FROM load_run WHERE TRUE"),
    };
    database.page(select, &NEWEST_FIRST, request).await
}
