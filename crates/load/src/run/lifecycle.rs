//! Every change of a run and its runners, each one transaction: queue, claim, start, finish, take over.

use std::time::Duration;

use hob_database::{Database, Transaction, UnixMs};
use hob_load_generator::Second;

use super::views::Progress;
use super::{Ending, Run, RunEvent, RunState, RunnerState};
use crate::Error;
use crate::database::{plans, runners, runs, seconds};
use crate::keys::TestId;
use crate::plan::catalog::PlanId;
use crate::results::report::Report;

/// A run to insert.
#[derive(Clone, Debug)]
pub(crate) struct NewRun {
    pub(crate) id: TestId,
    pub(crate) plan_id: PlanId,
    pub(crate) run_type: String,
    pub(crate) priority: i32,
    pub(crate) max_users: u32,
    pub(crate) target_users: u32,
    pub(crate) runners: u32,
}

/// The result of inserting a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InsertOutcome {
    Inserted,
    /// The id is taken.
    Exists,
    PlanNotFound,
}

/// The result of a change of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The run is now in this state.
    Applied(RunState),
    /// The change is not allowed in this state.
    Rejected(RunState),
    /// There is no such run, or another node coordinates it now.
    Gone,
}

/// Who requests a change of state.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Actor {
    User,
    /// The coordinator. Its request is valid only while its fence is the newest.
    Coordinator {
        fence: u64,
    },
}

/// What was done with a run whose coordinator's lease has expired.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ExpiredRun {
    /// It had not started, and is in the queue again.
    Requeued(TestId),
    /// The caller coordinates it now.
    TakenOver(Run),
}

/// One runner of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunnerId {
    pub(crate) run: TestId,
    pub(crate) epoch: u64,
    pub(crate) number: u32,
    pub(crate) node: String,
}

/// Whether a runner still belongs to its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    Active,
    /// It was marked as lost or has finished: its measurements are rejected.
    Removed,
}

/// The position in the queue. Each priority counts as one `aging_interval` of waiting, so that low priorities do not starve.
fn rank(queued_at: UnixMs, priority: i32, aging_interval: Duration) -> i64 {
    let step = i64::try_from(aging_interval.as_millis()).unwrap_or(i64::MAX);
    queued_at.0.saturating_sub(step.saturating_mul(i64::from(priority)))
}

pub(crate) async fn enqueue(
    database: &Database,
    run: &NewRun,
    aging_interval: Duration,
) -> Result<InsertOutcome, Error> {
    let seed = rand::random::<u32>();
    let outcome = database
        .write(|tx| async move {
            if runs::find(&tx, &run.id).await?.is_some() {
                return Ok(InsertOutcome::Exists);
            }
            let Some(plan) = plans::find(&tx, run.plan_id).await? else {
                return Ok(InsertOutcome::PlanNotFound);
            };
            let rank = rank(tx.now(), run.priority, aging_interval);
            runs::insert(&tx, run, plan.version, seed, rank).await?;
            Ok::<_, hob_database::Error>(InsertOutcome::Inserted)
        })
        .await?;
    Ok(outcome)
}

/// Takes the next run from the queue.
pub(crate) async fn claim(database: &Database, node: &str, lease: Duration) -> Result<Option<Run>, Error> {
    let claimed = database
        .write(|tx| async move {
            let Some(run) = runs::first_pending(&tx).await? else { return Ok(None) };
            let Some(state) = run.state.after(RunEvent::Claim) else { return Ok(None) };
            runs::set_claimed(&tx, &run.id, state, node, tx.now().plus(lease)).await?;
            runs::find(&tx, &run.id).await
        })
        .await?;
    Ok(claimed)
}

/// Requeues or takes over a run whose coordinator's lease has expired.
pub(crate) async fn recover_expired(
    database: &Database,
    node: &str,
    lease: Duration,
) -> Result<Option<ExpiredRun>, Error> {
    let recovered = database
        .write(|tx| async move {
            let Some(run) = runs::first_expired(&tx).await? else { return Ok(None) };
            if let Some(state) = run.state.after(RunEvent::Requeue) {
                runs::set_requeued(&tx, &run.id, state).await?;
                return Ok(Some(ExpiredRun::Requeued(run.id)));
            }
            runs::set_coordinator(&tx, &run.id, node, tx.now().plus(lease)).await?;
            let run = runs::find(&tx, &run.id).await?;
            Ok::<_, hob_database::Error>(run.map(ExpiredRun::TakenOver))
        })
        .await?;
    Ok(recovered)
}

/// Renews the coordinator's lease; `None` when the run has ended or another node coordinates it.
pub(crate) async fn renew_lease(
    database: &Database,
    run: &Run,
    lease: Duration,
) -> Result<Option<Run>, Error> {
    let renewed = database
        .write(|tx| async move {
            if !runs::renew_lease(&tx, &run.id, run.fence, tx.now().plus(lease)).await? {
                return Ok(None);
            }
            let run = runs::find(&tx, &run.id).await?;
            Ok::<_, hob_database::Error>(run.filter(|run| run.state.is_active()))
        })
        .await?;
    Ok(renewed)
}

/// Applies an event to a run, if its state allows it. `ending` is the final state of a run that now stops.
pub(crate) async fn change(
    database: &Database,
    id: &TestId,
    actor: Actor,
    event: RunEvent,
    ending: Option<RunState>,
    message: &str,
) -> Result<Transition, Error> {
    let transition =
        database.write(|tx| async move { apply(&tx, id, actor, event, ending, message).await }).await?;
    Ok(transition)
}

async fn apply(
    tx: &Transaction,
    id: &TestId,
    actor: Actor,
    event: RunEvent,
    ending: Option<RunState>,
    message: &str,
) -> Result<Transition, hob_database::Error> {
    let Some(run) = runs::find(tx, id).await? else { return Ok(Transition::Gone) };
    if matches!(actor, Actor::Coordinator { fence } if fence != run.fence) {
        return Ok(Transition::Gone);
    }
    let Some(state) = run.state.after(event) else { return Ok(Transition::Rejected(run.state)) };
    runs::set_state(tx, id, state, ending.or(run.ending), message).await?;
    Ok(Transition::Applied(state))
}

/// Starts a run. Its runners begin together `lead` from now, by the clock of the database.
pub(crate) async fn start(database: &Database, run: &Run, lead: Duration) -> Result<Transition, Error> {
    let transition = database
        .write(|tx| async move {
            let actor = Actor::Coordinator { fence: run.fence };
            let transition = apply(&tx, &run.id, actor, RunEvent::Start, None, "Running").await?;
            if let Transition::Applied(_) = transition {
                runs::set_start(&tx, &run.id, tx.now().plus(lead)).await?;
            }
            Ok::<_, hob_database::Error>(transition)
        })
        .await?;
    Ok(transition)
}

/// Ends a run and saves its progress and its report.
pub(crate) async fn finish(
    database: &Database,
    run: &Run,
    ending: Ending,
    message: &str,
    progress: Progress,
    report: Option<&Report>,
) -> Result<Transition, Error> {
    let (json, figures) = (&serde_json::to_string(&report)?, report.map(Report::figures));
    let transition = database
        .write(|tx| async move {
            let actor = Actor::Coordinator { fence: run.fence };
            let transition = apply(&tx, &run.id, actor, RunEvent::Finish(ending), None, message).await?;
            if let Transition::Applied(_) = transition {
                runs::set_progress(&tx, &run.id, progress).await?;
                runs::insert_report(&tx, &run.id, json, figures).await?;
            }
            Ok::<_, hob_database::Error>(transition)
        })
        .await?;
    Ok(transition)
}

/// Adds a runner to a run that has not started; returns its number. A node has one runner at most.
pub(crate) async fn add_runner(
    database: &Database,
    id: &TestId,
    epoch: u64,
    node: &str,
    lease: Duration,
) -> Result<Option<u32>, Error> {
    let number = database
        .write(|tx| async move {
            let Some(run) = runs::find(&tx, id).await? else { return Ok(None) };
            let present = runners::list(&tx, id, epoch).await?;
            let number = u32::try_from(present.len()).unwrap_or(u32::MAX);
            let is_present = present.iter().any(|runner| runner.node == node);
            if run.state != RunState::Starting || run.epoch != epoch || number >= run.runners || is_present {
                return Ok(None);
            }
            runners::insert(&tx, id, epoch, number, node, tx.now().plus(lease)).await?;
            Ok::<_, hob_database::Error>(Some(number))
        })
        .await?;
    Ok(number)
}

/// Marks a runner as lost if its lease has expired, after which it cannot write.
pub(crate) async fn expire_runner(
    database: &Database,
    id: &TestId,
    epoch: u64,
    number: u32,
) -> Result<bool, Error> {
    let expired = database.write(|tx| async move { runners::set_lost(&tx, id, epoch, number).await }).await?;
    Ok(expired)
}

/// Writes the seconds that a runner measured, renews its lease and sets its state. Idempotent: a row is written once.
pub(crate) async fn write_seconds(
    database: &Database,
    runner: &RunnerId,
    measured: &[Second],
    state: RunnerState,
    message: &str,
    lease: Duration,
) -> Result<Membership, Error> {
    let membership = database
        .write(|tx| async move {
            if !runners::update(&tx, runner, state, message, tx.now().plus(lease)).await? {
                return Ok(Membership::Removed);
            }
            seconds::insert(&tx, runner, measured).await?;
            Ok::<_, hob_database::Error>(Membership::Active)
        })
        .await?;
    Ok(membership)
}

/// Deletes the measurements of some of the runs that ended more than `keep` ago. Reports stay.
pub(crate) async fn delete_old_seconds(database: &Database, keep: Duration) -> Result<u64, Error> {
    let deleted = database
        .write(|tx| async move { seconds::delete_ended_before(&tx, tx.now().minus(keep)).await })
        .await?;
    Ok(deleted)
}

#[cfg(test)]
mod tests;
