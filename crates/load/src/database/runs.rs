//! Runs in the database: the queue, the claims, and every change of state, each checked against what is there.

use std::time::Duration;

use hob_database::{Database, Keyset, Kind, Page, PageRequest, Query, Read, Transaction, UnixMs, sql};

use crate::Error;
use crate::database::plans::{self, PlanId};
use crate::keys::TestId;
use crate::run::{Event, Run, Runner, RunnerState, State};

const NEWEST_FIRST: Keyset = Keyset::descending(&[("queued_at", Kind::Int), ("id", Kind::Text)]);

/// A run to be queued.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub id: TestId,
    pub plan_id: PlanId,
    pub run_type: String,
    pub priority: i32,
    pub max_users: Option<u32>,
    pub runners: u32,
}

/// What became of a wish to queue a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queued {
    Queued,
    /// A run of this id was there before.
    Known,
    NoPlan,
}

/// What became of a wish to change a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It is in this state now.
    To(State),
    /// It cannot be done to a run in this state.
    Not(State),
    /// There is no such run, or its conductor is another by now.
    Gone,
}

/// Whether a runner still is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    In,
    /// It was given up as lost, or the run is over: what it measured is no longer wanted.
    Out,
}

pub(crate) fn by_id(id: &TestId) -> Query<Run> {
    sql("SELECT * FROM load_run WHERE id = $1").bind(id)
}

/// A higher priority counts as if the run had been queued earlier, so that a run of a low one has its turn, too.
fn rank(queued_at: UnixMs, priority: i32, ageing: Duration) -> i64 {
    let step = i64::try_from(ageing.as_millis()).unwrap_or(i64::MAX);
    queued_at.0.saturating_sub(step.saturating_mul(i64::from(priority)))
}

pub(crate) async fn queue(database: &Database, run: &NewRun, ageing: Duration) -> Result<Queued, Error> {
    let seed = rand::random::<u32>();
    let queued = database
        .write(|tx| async move {
            if tx.optional(by_id(&run.id)).await?.is_some() {
                return Ok(Queued::Known);
            }
            let Some(plan) = tx.optional(plans::by_id(run.plan_id)).await? else {
                return Ok(Queued::NoPlan);
            };
            let insert = sql(
                "INSERT INTO load_run (id, plan_id, plan_version, run_type, priority, max_users, runners, seed, state,
                     message, fence, epoch, lease_until, rank, queued_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'In the queue', 0, 0, 0, $10, $11)",
            );
            let insert = insert.bind(&run.id).bind(run.plan_id).bind(plan.version).bind(run.run_type.as_str());
            let insert = insert.bind(run.priority).bind(run.max_users).bind(run.runners).bind(seed);
            let insert = insert.bind(State::Pending).bind(rank(tx.now(), run.priority, ageing)).bind(tx.now());
            tx.execute(insert).await?;
            Ok::<_, hob_database::Error>(Queued::Queued)
        })
        .await?;
    Ok(queued)
}

/// Takes the run whose turn it is.
pub(crate) async fn claim(database: &Database, node: &str, lease: Duration) -> Result<Option<Run>, Error> {
    let claimed = database
        .write(|tx| async move {
            let first = sql("SELECT * FROM load_run WHERE state = $1 ORDER BY rank, id LIMIT 1");
            let Some(run): Option<Run> = tx.optional(first.bind(State::Pending)).await? else {
                return Ok(None);
            };
            let Some(state) = run.state.after(Event::Claim) else { return Ok(None) };
            let claim = sql("UPDATE load_run SET state = $2, holder = $3, fence = fence + 1, epoch = fence + 1,
                                 lease_until = $4, message = 'Gathering runners', ending = NULL WHERE id = $1");
            tx.execute(claim.bind(&run.id).bind(state).bind(node).bind(tx.now().plus(lease))).await?;
            tx.optional(by_id(&run.id)).await
        })
        .await?;
    Ok(claimed)
}

/// A run whose conductor is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Orphan {
    /// Nothing had happened yet: it waits for another.
    Returned(TestId),
    /// It is the caller's to conduct.
    Adopted(Run),
}

/// Takes over a run whose conductor has not been heard of.
pub(crate) async fn adopt(database: &Database, node: &str, lease: Duration) -> Result<Option<Orphan>, Error> {
    let held = [State::Starting, State::Running, State::Paused, State::Stopping];
    let adopted = database
        .write(|tx| async move {
            let orphan = sql("SELECT * FROM load_run WHERE lease_until < $1 AND state IN ($2...) LIMIT 1");
            let Some(run): Option<Run> = tx.optional(orphan.bind(tx.now()).bind_list(held)).await? else {
                return Ok(None);
            };
            if let Some(state) = run.state.after(Event::Return) {
                let change =
                    sql("UPDATE load_run SET state = $2, holder = NULL, message = 'In the queue again'
                                  WHERE id = $1");
                tx.execute(change.bind(&run.id).bind(state)).await?;
                return Ok(Some(Orphan::Returned(run.id)));
            }
            let change =
                sql("UPDATE load_run SET holder = $2, fence = fence + 1, lease_until = $3 WHERE id = $1");
            tx.execute(change.bind(&run.id).bind(node).bind(tx.now().plus(lease))).await?;
            Ok::<_, hob_database::Error>(tx.optional(by_id(&run.id)).await?.map(Orphan::Adopted))
        })
        .await?;
    Ok(adopted)
}

/// Keeps a run for its conductor.
pub(crate) async fn hold(database: &Database, run: &Run, lease: Duration) -> Result<Option<Run>, Error> {
    let (id, fence) = (&run.id, run.fence);
    let held = database
        .write(|tx| async move {
            let renew = sql("UPDATE load_run SET lease_until = $3 WHERE id = $1 AND fence = $2");
            if tx.execute(renew.bind(id).bind(fence).bind(tx.now().plus(lease))).await? == 0 {
                return Ok(None);
            }
            Ok::<_, hob_database::Error>(tx.optional(by_id(id)).await?.filter(|run| run.state.is_held()))
        })
        .await?;
    Ok(held)
}

/// Who makes a change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    Anybody,
    Conductor { fence: u64 },
}

/// Changes a run's state, if that makes sense. `ending` is how a run that stops shall end.
pub(crate) async fn change(
    database: &Database,
    id: &TestId,
    by: By,
    event: Event,
    ending: Option<State>,
    message: &str,
) -> Result<Changed, Error> {
    let changed =
        database.write(|tx| async move { change_in(&tx, id, by, event, ending, message).await }).await?;
    Ok(changed)
}

async fn change_in(
    tx: &Transaction,
    id: &TestId,
    by: By,
    event: Event,
    ending: Option<State>,
    message: &str,
) -> Result<Changed, hob_database::Error> {
    let Some(run) = tx.optional(by_id(id)).await? else { return Ok(Changed::Gone) };
    if matches!(by, By::Conductor { fence } if fence != run.fence) {
        return Ok(Changed::Gone);
    }
    let Some(state) = run.state.after(event) else { return Ok(Changed::Not(run.state)) };
    let ended = state.is_final().then(|| tx.now());
    let change =
        sql("UPDATE load_run SET state = $2, ending = $3, message = $4, ended_at = $5 WHERE id = $1");
    let change = change.bind(id).bind(state).bind(ending.or(run.ending)).bind(message).bind(ended);
    tx.execute(change).await?;
    Ok(Changed::To(state))
}

/// Begins a run: all its runners start at the same time, by the clock of the database.
pub(crate) async fn begin(database: &Database, run: &Run, lead: Duration) -> Result<Changed, Error> {
    let changed = database
        .write(|tx| async move {
            let by = By::Conductor { fence: run.fence };
            let changed = change_in(&tx, &run.id, by, Event::Begin, None, "Running").await?;
            if let Changed::To(_) = changed {
                let start = sql("UPDATE load_run SET start_at = $2 WHERE id = $1");
                tx.execute(start.bind(&run.id).bind(tx.now().plus(lead))).await?;
            }
            Ok::<_, hob_database::Error>(changed)
        })
        .await?;
    Ok(changed)
}

/// Ends a run, with its report.
pub(crate) async fn end(
    database: &Database,
    run: &Run,
    ending: crate::run::Ending,
    message: &str,
    report: &str,
) -> Result<Changed, Error> {
    let changed = database
        .write(|tx| async move {
            let by = By::Conductor { fence: run.fence };
            let changed = change_in(&tx, &run.id, by, Event::End(ending), None, message).await?;
            if let Changed::To(_) = changed {
                let insert =
                    sql("INSERT INTO load_report (run_id, report) VALUES ($1, $2) ON CONFLICT DO NOTHING");
                tx.execute(insert.bind(&run.id).bind(report)).await?;
            }
            Ok::<_, hob_database::Error>(changed)
        })
        .await?;
    Ok(changed)
}

/// Takes part in a run that still gathers its runners; answers with the number of the new one.
pub(crate) async fn join(
    database: &Database,
    id: &TestId,
    epoch: u64,
    node: &str,
    lease: Duration,
) -> Result<Option<u32>, Error> {
    let joined = database
        .write(|tx| async move {
            let Some(run) = tx.optional(by_id(id)).await? else { return Ok(None) };
            let there = tx.all(runners(id, epoch)).await?;
            let number = u32::try_from(there.len()).unwrap_or(u32::MAX);
            let is_there = there.iter().any(|runner| runner.node == node);
            if run.state != State::Starting || run.epoch != epoch || number >= run.runners || is_there {
                return Ok(None);
            }
            let insert =
                sql("INSERT INTO load_runner (run_id, epoch, number, node, state, message, lease_until)
                              VALUES ($1, $2, $3, $4, $5, '', $6)");
            let insert = insert.bind(id).bind(epoch).bind(number).bind(node).bind(RunnerState::Working);
            tx.execute(insert.bind(tx.now().plus(lease))).await?;
            Ok::<_, hob_database::Error>(Some(number))
        })
        .await?;
    Ok(joined)
}

/// Runs that still want runners.
pub(crate) async fn gathering(database: &Database) -> Result<Vec<Run>, Error> {
    let list = sql("SELECT * FROM load_run WHERE state = $1 AND runners > 1 ORDER BY rank LIMIT 10");
    Ok(database.all(list.bind(State::Starting)).await?)
}

pub(crate) fn runners(id: &TestId, epoch: u64) -> Query<Runner> {
    sql("SELECT number, node, state, message, lease_until FROM load_runner
         WHERE run_id = $1 AND epoch = $2 ORDER BY number")
    .bind(id)
    .bind(epoch)
}

/// Gives up a runner that was not heard of. It can write nothing more.
pub(crate) async fn give_up(
    database: &Database,
    id: &TestId,
    epoch: u64,
    number: u32,
) -> Result<bool, Error> {
    let given = database
        .write(|tx| async move {
            let change = sql("UPDATE load_runner SET state = $4
                              WHERE run_id = $1 AND epoch = $2 AND number = $3 AND state = $5 AND lease_until < $6");
            let change = change.bind(id).bind(epoch).bind(number).bind(RunnerState::Lost);
            Ok::<_, hob_database::Error>(tx.execute(change.bind(RunnerState::Working).bind(tx.now())).await? == 1)
        })
        .await?;
    Ok(given)
}

/// A runner's place in a run.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) run: TestId,
    pub(crate) epoch: u64,
    pub(crate) number: u32,
    pub(crate) node: String,
}

pub(crate) async fn report(database: &Database, id: &TestId) -> Result<Option<String>, Error> {
    let found: Option<(String,)> =
        database.optional(sql("SELECT report FROM load_report WHERE run_id = $1").bind(id)).await?;
    Ok(found.map(|(report,)| report))
}

/// The runs that wait, in the order of their turns.
pub(crate) async fn waiting(database: &Database) -> Result<Vec<Run>, Error> {
    let list = sql("SELECT * FROM load_run WHERE state = $1 ORDER BY rank, id LIMIT 10000");
    Ok(database.all(list.bind(State::Pending)).await?)
}

/// The runs that nodes work on.
pub(crate) async fn held(database: &Database) -> Result<Vec<Run>, Error> {
    let held = [State::Starting, State::Running, State::Paused, State::Stopping];
    Ok(database.all(sql("SELECT * FROM load_run WHERE state IN ($1...) LIMIT 1000").bind_list(held)).await?)
}

pub(crate) async fn page(
    database: &Database,
    plan: Option<PlanId>,
    request: &PageRequest,
) -> Result<Page<Run>, Error> {
    let list = match plan {
        Some(plan) => sql("SELECT * FROM load_run WHERE plan_id = $1").bind(plan),
        None => sql("SELECT * FROM load_run WHERE TRUE"),
    };
    Ok(database.page(list, &NEWEST_FIRST, request).await?)
}

/// Drops the measurements of runs that ended long ago, a bounded number at a time; reports stay.
pub(crate) async fn forget(database: &Database, keep: Duration) -> Result<u64, Error> {
    let forgotten = database
        .write(|tx| async move {
            let old = sql("DELETE FROM load_second WHERE run_id IN (
                               SELECT id FROM load_run WHERE ended_at < $1
                               AND EXISTS (SELECT 1 FROM load_second WHERE run_id = load_run.id) LIMIT 20)");
            tx.execute(old.bind(tx.now().minus(keep))).await
        })
        .await?;
    Ok(forgotten)
}

/// What time it is by the clock of the database.
pub(crate) async fn now(database: &Database) -> Result<UnixMs, Error> {
    Ok(database.read(|snapshot| async move { Ok::<_, hob_database::Error>(snapshot.now()) }).await?)
}
