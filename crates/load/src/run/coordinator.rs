//! Coordinates a run: waits for its runners, starts them together, merges what they measure, and ends the run. When the
//! coordinator's lease expires, another node takes over.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use hob_load_generator::{TimelinePoint, Totals};
use hob_service::Task;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::lifecycle::{self, Actor, ExpiredRun, Transition};
use super::logs::{LogLevel, LogLine, LogStream};
use super::runner::run_share;
use super::views::{LiveSample, Progress};
use super::{Ending, Run, RunEvent, RunState, Runner, RunnerState};
use crate::Error;
use crate::database::seconds::{MergedSecond, SecondReader};
use crate::database::{self, runs};
use crate::load::Load;
use crate::metrics;
use crate::plan::Plan;
use crate::results::report::{Report, RunnerCount};

/// The time from the decision to start until the start. Every runner has to read the decision within this time.
const START_LEAD: Duration = Duration::from_millis(700);
/// Short enough that the coordinator does not lose its lease while the store does not answer.
const VIEW_TIMEOUT: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(250);
/// How often a node looks for runs when it is not notified.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A second of a run as live clients receive it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = LoadSecond)]
pub struct LiveSecond {
    /// When the second ended, in Unix milliseconds.
    pub at: i64,
    pub state: RunState,
    /// Per cent.
    pub progress: f64,
    /// Since the start of the run.
    pub total_succeeded: u64,
    /// Since the start of the run.
    pub total_failed: u64,
    #[serde(flatten)]
    pub point: TimelinePoint,
}

/// Coordinates runs and joins runs of other nodes until the process stops.
pub(crate) async fn work(load: Load, task: Task) {
    let mut jobs = JoinSet::new();
    let mut queued = load.inner.context.database.wakeups(runs::QUEUED);
    while !task.is_stopping() {
        let found = find_work(&load, &mut jobs).await;
        task.heartbeat();
        let wake = async {
            match &found {
                Ok(Work::None) => queued.wait(POLL_INTERVAL).await,
                Ok(Work::Some) | Err(_) => queued.wait_at_most(POLL_INTERVAL).await,
            }
        };
        if let Err(error) = &found
            && !error.is_reported()
        {
            tracing::warn!(%error, "failed to look for load runs");
        }
        tokio::select! {
            () = load.inner.work_available.notified() => {}
            () = wake => {}
            Some(ended) = jobs.join_next() => if let Err(error) = ended {
                // The lease expires. Then another node replaces a coordinator, and a run that lost a runner ends.
                tracing::error!(%error, "task of a load run panicked, its lease will expire");
            },
            () = task.stop_requested() => {}
        }
    }
    // The tasks see the stop token and end by themselves.
    while jobs.join_next().await.is_some() {}
}

/// Whether any node has work.
enum Work {
    Some,
    None,
}

async fn find_work(load: &Load, jobs: &mut JoinSet<()>) -> Result<Work, Error> {
    let (database, node) = (&load.inner.context.database, load.inner.context.node.as_str());
    if !runs::any_unfinished(database).await? {
        return Ok(Work::None);
    }
    let (lease, max_runs) = (load.config().lease.get(), load.config().max_concurrent_runs as usize);
    while let Some(expired) = lifecycle::recover_expired(database, node, lease).await? {
        match expired {
            ExpiredRun::Requeued(id) => load.publish_state(&id).await,
            ExpiredRun::TakenOver(run) => {
                tracing::warn!(run = %run.id, "load run taken over, the lease of its coordinator expired");
                jobs.spawn(coordinate(load.clone(), run, Assignment::TakenOver));
            }
        }
    }
    let has_room = || load.inner.local_runs.lock().len() < max_runs;
    while has_room() {
        let Some(run) = lifecycle::claim(database, node, lease).await? else { break };
        load.inner.local_runs.lock().insert(run.id.clone());
        load.publish_state(&run.id).await;
        jobs.spawn(coordinate_and_join(load.clone(), run));
    }
    for run in runs::awaiting_runners(database).await? {
        if has_room()
            && let Some(number) = lifecycle::add_runner(database, &run.id, run.epoch, node, lease).await?
        {
            load.inner.local_runs.lock().insert(run.id.clone());
            jobs.spawn(run_share(load.clone(), run, number));
        }
    }
    Ok(Work::Some)
}

/// The node of the coordinator is always the first runner.
async fn coordinate_and_join(load: Load, run: Run) {
    let (database, node) = (&load.inner.context.database, load.inner.context.node.as_str());
    let lease = load.config().lease.get();
    match lifecycle::add_runner(database, &run.id, run.epoch, node, lease).await {
        Ok(Some(number)) => {
            let coordinator = coordinate(load.clone(), run.clone(), Assignment::Claimed);
            tokio::join!(coordinator, run_share(load.clone(), run, number));
        }
        Ok(None) | Err(_) => drop(load.inner.local_runs.lock().remove(&run.id)),
    }
}

/// Why a node coordinates a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Assignment {
    Claimed,
    TakenOver,
}

/// Whether merged seconds are written to the views and to live clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Publish {
    Yes,
    No,
}

async fn coordinate(load: Load, run: Run, assignment: Assignment) {
    let id = run.id.clone();
    if let Err(error) = Coordinator::run(load, run, assignment).await {
        tracing::error!(run = %id, %error, "coordinator of a load run failed");
    }
}

struct Coordinator {
    load: Load,
    run: Run,
    plan: Plan,
    run_type: usize,
    totals: Totals,
    /// The first second that was not merged yet.
    next: u32,
    claimed: Instant,
    /// Whether the log of the run already has the warning that the generator is the bottleneck.
    warned: bool,
}

impl Coordinator {
    async fn run(load: Load, run: Run, assignment: Assignment) -> Result<(), Error> {
        let id = run.id.clone();
        let Some((plan, run_type)) = load.pinned_plan(&run).await? else {
            let database = &load.inner.context.database;
            lifecycle::finish(
                database,
                &run,
                Ending::Failed,
                "The version of the plan was not found",
                Progress::of(&run),
                None,
            )
            .await?;
            load.publish_state(&id).await;
            return Ok(());
        };
        let totals = Totals::new(&plan);
        let (claimed, warned) = (Instant::now(), assignment == Assignment::TakenOver);
        let mut coordinator = Self { load, run, plan, run_type, totals, next: 0, claimed, warned };
        // The former coordinator has published the seconds that exist.
        let publish = if assignment == Assignment::TakenOver { Publish::No } else { Publish::Yes };
        if let Err(error) = coordinator.merge(publish).await {
            tracing::warn!(run = %id, %error, "failed to read the results of a load run");
        }
        coordinator.warm_cache().await;
        loop {
            match coordinator.tick().await {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(()),
                Err(error) if error.is_reported() => {}
                // If this lasts longer than the lease, another node takes over.
                Err(error) => tracing::warn!(run = %id, %error, "failed to coordinate a load run, retrying"),
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// Fills the plan caches that clients read during a run (L10).
    async fn warm_cache(&self) {
        let cache = self.load.cache();
        let groups = cache.groups(self.run.plan_id, &self.run.run_type).await;
        let users = cache.users(self.run.plan_id, &self.run.run_type).await;
        if let Some(error) = groups.err().or(users.err()) {
            tracing::debug!(run = %self.run.id, %error, "failed to cache the plan of a load run");
        }
    }

    async fn tick(&mut self) -> Result<ControlFlow<()>, Error> {
        let lease = self.load.config().lease.get();
        let database = self.load.inner.context.database.clone();
        let Some(run) = lifecycle::renew_lease(&database, &self.run, lease).await? else {
            return Ok(ControlFlow::Break(()));
        };
        self.run = run;
        let runners = self.load.runners(&self.run).await?;
        match self.run.state {
            RunState::Starting => self.start_when_ready(&runners).await?,
            _ => self.merge(Publish::Yes).await?,
        }
        self.stop_if_needed(&runners).await?;
        self.warn_if_generator_limited().await;
        self.write_view("active runs", self.load.views().activate(&self.run.id)).await;
        let working = |runner: &Runner| runner.state == RunnerState::Working;
        if self.run.state != RunState::Starting && !runners.iter().any(working) {
            return self.finish(&runners).await;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Starts the run when all runners have joined, or when the time to wait for them is over.
    async fn start_when_ready(&mut self, runners: &[Runner]) -> Result<(), Error> {
        let all_joined = runners.len() >= self.run.runners as usize;
        let timed_out = self.claimed.elapsed() > self.load.config().gather_timeout.get();
        if runners.is_empty() || !(all_joined || timed_out) {
            // Later, every second is written with the status.
            self.write_view("status", self.load.views().status(&self.run, self.progress())).await;
            return Ok(());
        }
        lifecycle::start(&self.load.inner.context.database, &self.run, START_LEAD).await?;
        self.load.publish_state(&self.run.id).await;
        if let Some(missing) = RunnerCount::of(&self.run, runners).missing() {
            self.warn(&missing).await;
        }
        Ok(())
    }

    /// Stops the run when a runner is lost or has failed, when a threshold aborts it, or when this node stops.
    async fn stop_if_needed(&mut self, runners: &[Runner]) -> Result<(), Error> {
        let database = &self.load.inner.context.database;
        let now = database::now(database).await?;
        for runner in
            runners.iter().filter(|runner| runner.state == RunnerState::Working && runner.lease_until < now)
        {
            if lifecycle::expire_runner(database, &self.run.id, self.run.epoch, runner.number).await? {
                self.stop_without(runner).await?;
            }
        }
        // A runner that has noticed itself that its lease expired.
        if let Some(lost) = runners.iter().find(|runner| runner.state == RunnerState::Lost) {
            self.stop_without(lost).await?;
        }
        if let Some(failed) = runners.iter().find(|runner| runner.state == RunnerState::Failed) {
            let message = format!("The runner {} failed: {}", failed.node, failed.message);
            self.stop(RunState::Failed, &message).await?;
        }
        if let Some(threshold) = self.totals.abort(&self.plan, self.run_type) {
            let message = format!("Aborted: threshold {} was missed", threshold.text);
            self.stop(RunState::Failed, &message).await?;
        }
        if self.load.inner.context.tasks.stop_token().is_cancelled() {
            self.stop(RunState::Lost, "The coordinating node was stopped").await?;
        }
        Ok(())
    }

    async fn stop_without(&self, lost: &Runner) -> Result<(), Error> {
        self.stop(RunState::Lost, &format!("Lost the runner {}", lost.node)).await
    }

    async fn stop(&self, ending: RunState, message: &str) -> Result<(), Error> {
        if self.run.state == RunState::Stopping {
            return Ok(());
        }
        let actor = Actor::Coordinator { fence: self.run.fence };
        let database = &self.load.inner.context.database;
        lifecycle::change(database, &self.run.id, actor, RunEvent::Stop, Some(ending), message).await?;
        self.load.publish_state(&self.run.id).await;
        Ok(())
    }

    async fn finish(&mut self, runners: &[Runner]) -> Result<ControlFlow<()>, Error> {
        // What the runners wrote last.
        self.merge(Publish::Yes).await?;
        let missed: Vec<String> = self
            .totals
            .threshold_results(&self.plan, self.run_type)
            .into_iter()
            .filter(|result| !result.met)
            .map(|result| result.threshold)
            .collect();
        let all_done = runners.iter().all(|runner| runner.state == RunnerState::Done);
        let (ending, message) = match self.run.state {
            RunState::Stopping => (Ending::of(self.run.ending), self.run.message.clone()),
            _ if !all_done => (Ending::Lost, "All runners were lost".to_owned()),
            _ if missed.is_empty() => (Ending::Completed, "Completed".to_owned()),
            _ => (Ending::Failed, format!("Missed {}", missed.join(", "))),
        };
        let start = self.run.start_at.unwrap_or(self.run.queued_at).0;
        let mut report = Report::new(&self.plan, self.run_type, start, &self.totals);
        report.runners = Some(RunnerCount::of(&self.run, runners));
        let database = &self.load.inner.context.database;
        let progress = self.progress();
        let percent = if ending == Ending::Completed { 100.0 } else { progress.percent };
        let progress = Progress { percent, ..progress };
        let transition =
            lifecycle::finish(database, &self.run, ending, &message, progress, Some(&report)).await?;
        if let Transition::Applied(_) = transition {
            metrics::ended(ending);
        }
        self.load.publish_state(&self.run.id).await;
        Ok(ControlFlow::Break(()))
    }

    /// Adds the seconds that all working runners have written to the totals.
    async fn merge(&mut self, publish: Publish) -> Result<(), Error> {
        let database = self.load.inner.context.database.clone();
        // This is read before the seconds, because a runner that is done has written all of its seconds.
        let runners = self.load.runners(&self.run).await?;
        let mut reader = SecondReader::new(&self.run, self.next);
        while let Some(MergedSecond { second, nodes }) = reader.next(&database).await? {
            let is_complete = runners
                .iter()
                .all(|runner| runner.state != RunnerState::Working || nodes.contains(&runner.node));
            if !is_complete {
                break;
            }
            self.totals.add(&second);
            self.next = second.second + 1;
            if publish == Publish::Yes {
                self.publish_second().await;
            }
        }
        Ok(())
    }

    async fn publish_second(&self) {
        let Some(point) = self.totals.points().last() else { return };
        let start = self.run.start_at.unwrap_or(self.run.queued_at).0;
        let (failed, progress) = (self.totals.failed(), self.progress());
        let succeeded = self.totals.requests() - failed;
        let at = start + i64::from(point.second + 1) * 1000;
        let sample = LiveSample { point, at, succeeded, failed };
        let live = LiveSecond {
            at,
            state: self.run.state,
            progress: progress.percent,
            total_succeeded: succeeded,
            total_failed: failed,
            point: point.clone(),
        };
        let live = [serde_json::to_string(&live).unwrap_or_default()];
        self.write_view("second", async {
            self.load.views().publish(&self.run, progress, &sample).await?;
            self.load.logs().append(&self.run.id, LogStream::Seconds, &live).await
        })
        .await;
        self.load.notify_pages();
    }

    async fn warn_if_generator_limited(&mut self) {
        let Some(reason) = self.totals.generator_limited().filter(|_| !self.warned) else { return };
        self.warned = true;
        self.warn(&format!("The generator is the bottleneck: {reason}")).await;
    }

    /// Writes a warning to the log of the run.
    async fn warn(&self, message: &str) {
        let at = jiff::Timestamp::now().as_millisecond();
        let line = [LogLine::new(at, LogLevel::Warn, message)];
        self.write_view("warning", self.load.logs().write(&self.run.id, &line)).await;
    }

    /// Writes a view. A failure is logged: views are not part of the result.
    async fn write_view(&self, view: &str, write: impl Future<Output = Result<(), Error>>) {
        match tokio::time::timeout(VIEW_TIMEOUT, write).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if error.is_reported() => {}
            Ok(Err(error)) => {
                tracing::warn!(run = %self.run.id, view, %error, "failed to write the live data of a load run to the store");
            }
            Err(_) => {
                tracing::warn!(run = %self.run.id, view, "writing the live data of a load run to the store timed out");
            }
        }
    }

    fn progress(&self) -> Progress {
        let seconds = self.plan.duration().as_secs_f64().max(1.0);
        let planned = self.plan.target_users(self.run_type);
        let users = self.totals.points().last().map_or(0, |point| point.users);
        let peak = self.totals.points().iter().map(|point| point.users).max().unwrap_or(0);
        Progress {
            users,
            // A plan with the open model does not set a number of users, so the highest number so far is shown as the
            // target.
            target_users: planned.max(u32::try_from(peak).unwrap_or(u32::MAX)),
            percent: (f64::from(self.totals.seconds()) / seconds * 100.0).min(100.0),
        }
    }
}
