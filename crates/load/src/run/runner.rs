//! A node's share of a run: generates load, and keeps each second until it is committed to the database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_load_generator::Second;
use serde::Serialize;

use super::lifecycle::{self, Membership, RunnerId};
use super::logs::LogLine;
use super::{Run, RunState, RunnerState};
use crate::Error;
use crate::database;
use crate::generator::{Generator, Job, ResolvedTargets, Share};
use crate::load::Load;
use crate::metrics;
use crate::plan::Plan;

/// How often a runner reads the state of its run. A cancellation takes effect within two of these.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The poll interval before the start, which a runner must not miss.
const START_POLL_INTERVAL: Duration = Duration::from_millis(50);
const VIEW_TIMEOUT: Duration = Duration::from_millis(500);
/// A runner stops if this many seconds could not be written.
const MAX_UNWRITTEN: usize = 600;

/// Runs a node's share of a run to its end.
pub(crate) async fn run_share(load: Load, run: Run, number: u32) {
    let node = load.inner.context.node.to_string();
    let id = RunnerId { run: run.id.clone(), epoch: run.epoch, number, node };
    load.inner.local_runs.lock().insert(run.id.clone());
    let task = RunnerTask { load: load.clone(), id, renewed: Instant::now(), unwritten: Vec::new() };
    if let Err(error) = task.run(&run).await {
        tracing::error!(run = %run.id, %error, "runner of a load run failed");
    }
    metrics::idle();
    load.inner.local_runs.lock().remove(&run.id);
    load.inner.work_available.notify_one();
}

struct RunnerTask {
    load: Load,
    id: RunnerId,
    /// When the lease was last renewed.
    renewed: Instant,
    /// Measured, but not committed to the database yet.
    unwritten: Vec<Second>,
}

/// An entry of `buffer:metrics` (L9).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BufferEntry<'a> {
    runner: &'a str,
    second: u32,
    requests: u64,
    errors: u64,
    active_users: u64,
    p50: f64,
    p99: f64,
}

impl RunnerTask {
    async fn run(mut self, run: &Run) -> Result<(), Error> {
        let Some((plan, run_type)) = self.load.pinned_plan(run).await? else {
            return self.fail("the version of the plan was not found").await;
        };
        let plan = Arc::new(plan);
        let targets = match self.load.targets().resolve(&plan, run_type).await {
            Ok(targets) => targets,
            Err(error) => return self.fail(&error.to_string()).await,
        };
        let Some((start, of)) = self.wait_for_start().await? else {
            return self.finish(RunnerState::Done, "").await.map(drop);
        };
        let share = Share { index: self.id.number, of };
        self.generate(run, plan, run_type, targets, share, start).await
    }

    /// The start by the local clock and the number of runners; `None` if the run does not start.
    async fn wait_for_start(&mut self) -> Result<Option<(Instant, u32)>, Error> {
        loop {
            if self.write(RunnerState::Working, "").await == Membership::Removed {
                return Ok(None);
            }
            let Some(run) = self.load.run(&self.id.run).await? else { return Ok(None) };
            if run.epoch != self.id.epoch
                || !matches!(run.state, RunState::Starting | RunState::Running | RunState::Paused)
            {
                return Ok(None);
            }
            if let Some(start_at) = run.start_at.filter(|_| run.state != RunState::Starting) {
                let runners = self.load.runners(&run).await?;
                // Assumes that the database's clock was read in the middle of the round trip.
                let asked = Instant::now();
                let now = database::now(&self.load.inner.context.database).await?;
                let read_at = asked + asked.elapsed() / 2;
                let (lead, late) = (start_at.since(now), now.since(start_at));
                let start = (read_at + lead).checked_sub(late).unwrap_or(read_at);
                return Ok(Some((start, u32::try_from(runners.len()).unwrap_or(1).max(1))));
            }
            if self.load.inner.context.tasks.stop_token().is_cancelled() {
                return Ok(None);
            }
            tokio::time::sleep(START_POLL_INTERVAL).await;
        }
    }

    async fn generate(
        mut self,
        run: &Run,
        plan: Arc<Plan>,
        run_type: usize,
        targets: ResolvedTargets,
        share: Share,
        start: Instant,
    ) -> Result<(), Error> {
        let threads = self.load.config().generator_threads();
        let job = Job { plan: Arc::clone(&plan), run_type, share, threads, seed: run.seed, start, targets };
        let mut generator = match Generator::start(&job) {
            Ok(generator) => generator,
            Err(error) => return self.fail(&format!("cannot start the generator: {error}")).await,
        };
        let stopping = self.load.inner.context.tasks.stop_token();
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut lost_lease = false;
        loop {
            tokio::select! {
                second = generator.next() => match second {
                    Some(second) => self.record(second, &plan, &mut generator).await,
                    None => break,
                },
                _ = poll.tick() => self.apply_state(&generator).await,
                () = stopping.cancelled(), if !stopping.is_cancelled() => generator.control().stop(),
            }
            if self.write(RunnerState::Working, "").await == Membership::Removed {
                // Dropping the generator stops it.
                return Ok(());
            }
            if self.has_lost_lease() {
                lost_lease = true;
                generator.control().stop();
            }
        }
        let (last, message) = if stopping.is_cancelled() {
            (RunnerState::Failed, "the node was stopped")
        } else if lost_lease {
            // Its share is not complete, even if it reaches the database again before the coordinator does.
            (RunnerState::Lost, "its lease expired")
        } else {
            (RunnerState::Done, "")
        };
        self.finish(last, message).await.map(drop)
    }

    /// Pauses, resumes or stops the generator according to the state of the run.
    async fn apply_state(&mut self, generator: &Generator) {
        let control = generator.control();
        match self.load.run(&self.id.run).await {
            Ok(Some(run)) if run.epoch == self.id.epoch => match run.state {
                RunState::Running => control.resume(),
                RunState::Paused => control.pause(),
                _ => control.stop(),
            },
            Ok(_) => control.stop(),
            // The lease limits how long the generator continues without an answer.
            Err(error) => {
                tracing::warn!(run = %self.id.run, %error, "failed to read the state of a load run");
            }
        }
    }

    async fn record(&mut self, second: Second, plan: &Plan, generator: &mut Generator) {
        let id = &self.id.run;
        let latency = second.intended().summary();
        let entry = BufferEntry {
            runner: &self.id.node,
            second: second.second,
            requests: second.requests(),
            errors: second.failed(),
            active_users: second.generator.active_users,
            p50: latency.p50,
            p99: latency.p99,
        };
        let entry = serde_json::to_string(&entry).unwrap_or_default();
        let at = jiff::Timestamp::now().as_millisecond();
        let events = generator.user_events();
        let lines: Vec<LogLine> = events.iter().map(|event| LogLine::of(event, plan, at)).collect();
        metrics::second(&second);
        self.unwritten.push(second);
        let write = async {
            self.load.views().buffer(id, &entry).await?;
            self.load.logs().write(id, &lines).await
        };
        // Only views: a store that does not answer must not delay a cancellation or the renewal of the lease.
        match tokio::time::timeout(VIEW_TIMEOUT, write).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(run = %id, %error, "failed to write the live data of a load run to the store");
            }
            Err(_) => {
                tracing::debug!(run = %id, "writing the live data of a load run to the store timed out");
            }
        }
    }

    /// Writes the seconds that are not committed yet. After a failure they stay for the next call.
    async fn write(&mut self, state: RunnerState, message: &str) -> Membership {
        let lease = self.load.config().lease.get();
        let renewal_due = self.renewed.elapsed() > lease / 5;
        if self.unwritten.is_empty() && !renewal_due && state == RunnerState::Working {
            return Membership::Active;
        }
        let database = &self.load.inner.context.database;
        match lifecycle::write_seconds(database, &self.id, &self.unwritten, state, message, lease).await {
            Ok(membership) => {
                self.unwritten.clear();
                self.renewed = Instant::now();
                membership
            }
            Err(error) => {
                let unwritten = self.unwritten.len();
                tracing::warn!(run = %self.id.run, unwritten, %error, "failed to store the results of a load run, retrying");
                Membership::Active
            }
        }
    }

    /// Whether the coordinator may consider this runner lost, in which case it has to stop, because the run may start
    /// again on other nodes.
    fn has_lost_lease(&self) -> bool {
        self.renewed.elapsed() > self.load.config().lease.get() || self.unwritten.len() > MAX_UNWRITTEN
    }

    async fn fail(&mut self, message: &str) -> Result<(), Error> {
        self.finish(RunnerState::Failed, message).await.map(drop)
    }

    /// Writes the remaining seconds and the final state; retries until the lease has expired.
    async fn finish(&mut self, state: RunnerState, message: &str) -> Result<Membership, Error> {
        let lease = self.load.config().lease.get();
        let begun = Instant::now();
        loop {
            let database = &self.load.inner.context.database;
            match lifecycle::write_seconds(database, &self.id, &self.unwritten, state, message, lease).await {
                Err(error) if begun.elapsed() > lease => return Err(error),
                Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
                membership => return membership,
            }
        }
    }
}
