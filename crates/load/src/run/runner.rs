//! A node's part in a run: generates its share of the load, and keeps each second until it is in the database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Error;
use crate::database;
use crate::generator::{Generator, Job, Route, Share};
use crate::load::Load;
use crate::metrics;
use crate::plan::Plan;
use crate::results::second::Second;
use crate::run::lifecycle::{self, Membership, RunnerId};
use crate::run::logs::Line;
use crate::run::{Run, RunnerState, State};

/// How often a runner looks at what the run is to do. Cancelling takes effect within two of these.
const LOOK: Duration = Duration::from_millis(250);
/// While it waits for the start, which must not be missed.
const LOOK_FOR_START: Duration = Duration::from_millis(50);
/// How long a view may take to be written.
const VIEW_PATIENCE: Duration = Duration::from_millis(500);
/// Without the database for so many seconds it gives up.
const MOST_KEPT: usize = 600;

/// Takes part in a run until its share is done.
pub(crate) async fn take_part(tests: Load, run: Run, number: u32) {
    let node = tests.inner.context.node.to_string();
    let seat = RunnerId { run: run.id.clone(), epoch: run.epoch, number, node };
    tests.inner.busy.lock().insert(run.id.clone());
    let part = Part { tests: tests.clone(), seat, renewed: Instant::now(), kept: Vec::new() };
    if let Err(error) = part.play(&run).await {
        tracing::error!(run = %run.id, %error, "this node cannot go on with a run");
    }
    metrics::rest();
    tests.inner.busy.lock().remove(&run.id);
    tests.inner.bell.notify_one();
}

struct Part {
    tests: Load,
    seat: RunnerId,
    renewed: Instant,
    /// Measured, but not in the database yet.
    kept: Vec<Second>,
}

/// A second on its way into the database, as others see it (L9).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Buffered<'a> {
    runner: &'a str,
    second: u32,
    requests: u64,
    errors: u64,
    active_users: u64,
    p50: f64,
    p99: f64,
}

impl Part {
    async fn play(mut self, run: &Run) -> Result<(), Error> {
        let Some((plan, kind)) = self.tests.pinned(run).await? else {
            return self.fail("its plan is gone").await;
        };
        let plan = Arc::new(plan);
        let route = match self.tests.config().targets().resolve(&plan, kind).await {
            Ok(route) => route,
            Err(refused) => return self.fail(&refused.to_string()).await,
        };
        let Some((start, of)) = self.wait_for_start().await? else {
            return self.leave(RunnerState::Done, "").await.map(drop);
        };
        let share = Share { index: self.seat.number, of };
        self.generate(run, plan, kind, route, share, start).await
    }

    /// The time to start by this machine's clock and the number of runners; `None` if it comes to nothing.
    async fn wait_for_start(&mut self) -> Result<Option<(Instant, u32)>, Error> {
        loop {
            if self.write(RunnerState::Working, "").await == Membership::Removed {
                return Ok(None);
            }
            let database = &self.tests.inner.context.database;
            let Some(run) = self.tests.run(&self.seat.run).await? else { return Ok(None) };
            if run.epoch != self.seat.epoch
                || !matches!(run.state, State::Starting | State::Running | State::Paused)
            {
                return Ok(None);
            }
            if let Some(start_at) = run.start_at.filter(|_| run.state != State::Starting) {
                let runners = self.tests.runners(&run).await?;
                let asked = Instant::now();
                let now = database::now(database).await?;
                let here = asked + asked.elapsed() / 2;
                let lead = start_at.since(now);
                let late = now.since(start_at);
                let start = (here + lead).checked_sub(late).unwrap_or(here);
                return Ok(Some((start, u32::try_from(runners.len()).unwrap_or(1).max(1))));
            }
            if self.tests.inner.context.tasks.stop_token().is_cancelled() {
                return Ok(None);
            }
            tokio::time::sleep(LOOK_FOR_START).await;
        }
    }

    async fn generate(
        mut self,
        run: &Run,
        plan: Arc<Plan>,
        run_type: usize,
        route: Route,
        share: Share,
        start: Instant,
    ) -> Result<(), Error> {
        let threads = self.tests.config().generator_threads();
        let job = Job { plan: Arc::clone(&plan), run_type, share, threads, seed: run.seed, start, route };
        let mut generator = match Generator::start(&job) {
            Ok(generator) => generator,
            Err(error) => return self.fail(&format!("the generator could not start: {error}")).await,
        };
        let stopping = self.tests.inner.context.tasks.stop_token();
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                second = generator.next() => match second {
                    Some(second) => self.keep(second, &plan, &mut generator).await,
                    None => break,
                },
                _ = look.tick() => self.obey(&generator).await,
                () = stopping.cancelled(), if !stopping.is_cancelled() => generator.orders().stop(),
            }
            if self.write(RunnerState::Working, "").await == Membership::Removed {
                // Dropping the generator stops it.
                return Ok(());
            }
            if self.is_cut_off() {
                generator.orders().stop();
            }
        }
        let last = if stopping.is_cancelled() { RunnerState::Failed } else { RunnerState::Done };
        let message = if stopping.is_cancelled() { "the node was stopped" } else { "" };
        self.leave(last, message).await.map(drop)
    }

    /// Does what the run is told to do.
    async fn obey(&mut self, generator: &Generator) {
        let orders = generator.orders();
        match self.tests.run(&self.seat.run).await {
            Ok(Some(run)) if run.epoch == self.seat.epoch => match run.state {
                State::Running => orders.resume(),
                State::Paused => orders.pause(),
                _ => orders.stop(),
            },
            Ok(_) => orders.stop(),
            // The lease decides how long it goes on unguided.
            Err(error) => tracing::warn!(run = %self.seat.run, %error, "a run cannot be looked at"),
        }
    }

    async fn keep(&mut self, second: Second, plan: &Plan, generator: &mut Generator) {
        let id = &self.seat.run;
        let latency = second.intended().summary();
        let entry = Buffered {
            runner: &self.seat.node,
            second: second.second,
            requests: second.requests(),
            errors: second.failed(),
            active_users: second.general.active_users,
            p50: latency.p50,
            p99: latency.p99,
        };
        let entry = serde_json::to_string(&entry).unwrap_or_default();
        let at = jiff::Timestamp::now().as_millisecond();
        let lines: Vec<Line> = generator.samples().iter().map(|sample| Line::of(sample, plan, at)).collect();
        metrics::second(&second);
        self.kept.push(second);
        let shown = async {
            self.tests.views().buffer(id, &entry).await?;
            self.tests.logs().write(id, &lines).await
        };
        // Views only: a store that is away must neither keep the run from being cancelled nor its lease from being
        // renewed.
        match tokio::time::timeout(VIEW_PATIENCE, shown).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(run = %id, %error, "a second is not shown"),
            Err(_) => tracing::debug!(run = %id, "a second is not shown: the store takes too long"),
        }
    }

    /// Tries to write what is kept; what fails is kept for the next try.
    async fn write(&mut self, state: RunnerState, message: &str) -> Membership {
        let lease = self.tests.config().lease.get();
        let due = self.renewed.elapsed() > lease / 5;
        if self.kept.is_empty() && !due && state == RunnerState::Working {
            return Membership::Active;
        }
        let database = &self.tests.inner.context.database;
        match lifecycle::write_seconds(database, &self.seat, &self.kept, state, message, lease).await {
            Ok(standing) => {
                self.kept.clear();
                self.renewed = Instant::now();
                standing
            }
            Err(error) => {
                tracing::warn!(run = %self.seat.run, kept = self.kept.len(), %error, "seconds wait for the database");
                Membership::Active
            }
        }
    }

    /// Whether others must think that this runner is gone: it has to stop, for they may start anew.
    fn is_cut_off(&self) -> bool {
        self.renewed.elapsed() > self.tests.config().lease.get() || self.kept.len() > MOST_KEPT
    }

    async fn fail(&mut self, message: &str) -> Result<(), Error> {
        self.leave(RunnerState::Failed, message).await.map(drop)
    }

    /// Writes the rest and leaves; tries for as long as its seat is kept.
    async fn leave(&mut self, state: RunnerState, message: &str) -> Result<Membership, Error> {
        let lease = self.tests.config().lease.get();
        let begun = Instant::now();
        loop {
            let database = &self.tests.inner.context.database;
            match lifecycle::write_seconds(database, &self.seat, &self.kept, state, message, lease).await {
                Err(error) if begun.elapsed() > lease => return Err(error),
                Err(_) => tokio::time::sleep(LOOK).await,
                standing => return standing,
            }
        }
    }
}
