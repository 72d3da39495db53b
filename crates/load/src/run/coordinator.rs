//! Conducts a run: gathers its runners, starts them together, merges what they measure, and ends it. Should the
//! conductor be gone, another node goes on where it was.

use std::time::{Duration, Instant};

use hob_service::Task;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::Error;
use crate::database::seconds::{MergedSecond, SecondReader};
use crate::database::{self, runs};
use crate::load::Load;
use crate::metrics;
use crate::plan::Plan;
use crate::results::report::Report;
use crate::results::totals::{Point, Tally};
use crate::run::lifecycle::{self, Actor, ExpiredRun, Transition};
use crate::run::logs::{Level, Line, Ring};
use crate::run::runner::take_part;
use crate::run::views::{Sample, Shown};
use crate::run::{Ending, Event, Run, Runner, RunnerState, State};

/// Between the decision to start and the start itself, in which every runner has to learn of it.
const LEAD: Duration = Duration::from_millis(700);
/// How long a view may take to be written: two of them fit into a lease.
const VIEW_PATIENCE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(250);

/// A second of a run, as those who watch it live see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LoadSecond)]
pub struct LiveSecond {
    /// Unix milliseconds of its end.
    pub at: i64,
    pub state: State,
    /// Per cent.
    pub progress: f64,
    /// Of the whole run so far.
    pub total_succeeded: u64,
    pub total_failed: u64,
    #[serde(flatten)]
    pub point: Point,
}

/// Looks for runs to conduct and to take part in, until the process stops.
pub(crate) async fn work(tests: Load, task: Task) {
    let mut jobs = JoinSet::new();
    while !task.stopping() {
        if let Err(error) = look(&tests, &mut jobs).await {
            tracing::warn!(%error, "could not look for load tests to run");
        }
        task.beat();
        tokio::select! {
            () = tests.inner.bell.notified() => {}
            () = tokio::time::sleep(Load::look_every()) => {}
            Some(ended) = jobs.join_next() => if let Err(error) = ended {
                tracing::error!(%error, "a run was dropped; its lease runs out, and another node goes on with it");
            },
            () = task.stopped() => {}
        }
    }
    // Runs that this node takes part in end themselves, now that they are told to stop.
    while jobs.join_next().await.is_some() {}
}

async fn look(tests: &Load, jobs: &mut JoinSet<()>) -> Result<(), Error> {
    let (database, node) = (&tests.inner.context.database, tests.inner.context.node.as_str());
    let (lease, most) = (tests.config().lease.get(), tests.config().runs_at_once as usize);
    while let Some(orphan) = lifecycle::recover_expired(database, node, lease).await? {
        match orphan {
            ExpiredRun::Requeued(id) => tests.show(&id, Shown::default()).await,
            ExpiredRun::TakenOver(run) => {
                tracing::warn!(run = %run.id, "goes on with a run whose conductor is gone");
                jobs.spawn(conduct(tests.clone(), run, Since::Before));
            }
        }
    }
    let has_room = || tests.inner.busy.lock().len() < most;
    while has_room() {
        let Some(run) = lifecycle::claim(database, node, lease).await? else { break };
        tests.inner.busy.lock().insert(run.id.clone());
        tests.show(&run.id, Shown::default()).await;
        let (tests, part) = (tests.clone(), run.clone());
        jobs.spawn(async move {
            // The conductor's own node is always the first runner.
            let lease = tests.config().lease.get();
            let joined = lifecycle::add_runner(
                &tests.inner.context.database,
                &part.id,
                part.epoch,
                tests.inner.context.node.as_str(),
                lease,
            );
            match joined.await {
                Ok(Some(number)) => {
                    tokio::join!(conduct(tests.clone(), run, Since::Now), take_part(tests, part, number));
                }
                Ok(None) | Err(_) => drop(tests.inner.busy.lock().remove(&part.id)),
            }
        });
    }
    for run in runs::awaiting_runners(database).await? {
        if has_room()
            && let Some(number) = lifecycle::add_runner(database, &run.id, run.epoch, node, lease).await?
        {
            tests.inner.busy.lock().insert(run.id.clone());
            jobs.spawn(take_part(tests.clone(), run, number));
        }
    }
    Ok(())
}

/// Whether a run was begun by this conductor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    Now,
    Before,
}

async fn conduct(tests: Load, run: Run, since: Since) {
    let id = run.id.clone();
    if let Err(error) = Conductor::conduct(tests, run, since).await {
        tracing::error!(run = %id, %error, "this node cannot conduct a run any more");
    }
}

struct Conductor {
    tests: Load,
    run: Run,
    plan: Plan,
    kind: usize,
    tally: Tally,
    next: u32,
    claimed: Instant,
    /// Whether it was told that the generator is the bottleneck.
    warned: bool,
}

impl Conductor {
    async fn conduct(tests: Load, run: Run, since: Since) -> Result<(), Error> {
        let id = run.id.clone();
        let Some((plan, kind)) = tests.pinned(&run).await? else {
            lifecycle::finish(
                &tests.inner.context.database,
                &run,
                Ending::Failed,
                "Its plan is gone",
                "null",
            )
            .await?;
            tests.show(&id, Shown::default()).await;
            return Ok(());
        };
        let tally = Tally::new(&plan);
        let mut conductor = Self {
            tests,
            run,
            plan,
            kind,
            tally,
            next: 0,
            claimed: Instant::now(),
            warned: since == Since::Before,
        };
        // What was measured under another conductor was shown by it.
        let seen = conductor.merge(since).await;
        if let Err(error) = seen {
            tracing::warn!(run = %id, %error, "what was measured so far cannot be read yet");
        }
        conductor.warm().await;
        loop {
            match conductor.tick().await {
                Ok(Go::On) => {}
                Ok(Go::Over) => return Ok(()),
                // Not for longer than the lease: then it is another's.
                Err(error) => tracing::warn!(run = %id, %error, "a run is not conducted for the moment"),
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// What others read of the plan while it runs (L10).
    async fn warm(&self) {
        let cache = self.tests.cache();
        let groups = cache.groups(self.run.plan_id, &self.run.run_type).await;
        let users = cache.users(self.run.plan_id, &self.run.run_type).await;
        if let Some(error) = groups.err().or(users.err()) {
            tracing::debug!(%error, "a plan is not kept at hand");
        }
    }

    async fn tick(&mut self) -> Result<Go, Error> {
        let lease = self.tests.config().lease.get();
        let database = self.tests.inner.context.database.clone();
        let Some(run) = lifecycle::renew_lease(&database, &self.run, lease).await? else {
            return Ok(Go::Over);
        };
        self.run = run;
        let runners = self.tests.runners(&self.run).await?;
        match self.run.state {
            State::Starting => self.gather(&runners).await?,
            _ => self.merge(Since::Now).await?,
        }
        self.look_after(&runners).await?;
        self.warn().await;
        self.show_active().await;
        let working = |runner: &Runner| runner.state == RunnerState::Working;
        if self.run.state != State::Starting && !runners.iter().any(working) {
            return self.end(&runners).await;
        }
        Ok(Go::On)
    }

    async fn gather(&mut self, runners: &[Runner]) -> Result<(), Error> {
        let all = runners.len() >= self.run.runners as usize;
        let waited = self.claimed.elapsed() > self.tests.config().gather.get();
        if runners.is_empty() || !(all || waited) {
            return Ok(());
        }
        lifecycle::start(&self.tests.inner.context.database, &self.run, LEAD).await?;
        self.tests.show(&self.run.id, self.shown()).await;
        Ok(())
    }

    /// Stops the run when a runner is lost or failed, when a threshold says so, or when the node stops.
    async fn look_after(&mut self, runners: &[Runner]) -> Result<(), Error> {
        let database = &self.tests.inner.context.database;
        let now = database::now(database).await?;
        for runner in
            runners.iter().filter(|runner| runner.state == RunnerState::Working && runner.lease_until < now)
        {
            if lifecycle::expire_runner(database, &self.run.id, self.run.epoch, runner.number).await? {
                let message = format!("Lost the runner {}", runner.node);
                self.stop(State::Lost, &message).await?;
            }
        }
        if let Some(failed) = runners.iter().find(|runner| runner.state == RunnerState::Failed) {
            let message = format!("The runner {}: {}", failed.node, failed.message);
            self.stop(State::Failed, &message).await?;
        }
        if let Some(threshold) = self.tally.abort(&self.plan) {
            let message = format!("Aborted: {} was missed", threshold.text);
            self.stop(State::Failed, &message).await?;
        }
        if self.tests.inner.context.tasks.stop_token().is_cancelled() {
            self.stop(State::Lost, "The node that conducts it was stopped").await?;
        }
        Ok(())
    }

    async fn stop(&self, ending: State, message: &str) -> Result<(), Error> {
        if self.run.state == State::Stopping {
            return Ok(());
        }
        let by = Actor::Coordinator { fence: self.run.fence };
        let database = &self.tests.inner.context.database;
        lifecycle::change(database, &self.run.id, by, Event::Stop, Some(ending), message).await?;
        self.tests.show(&self.run.id, self.shown()).await;
        Ok(())
    }

    async fn end(&mut self, runners: &[Runner]) -> Result<Go, Error> {
        // What the last of them wrote.
        self.merge(Since::Now).await?;
        let missed: Vec<String> = self
            .tally
            .verdicts(&self.plan)
            .into_iter()
            .filter(|verdict| !verdict.met)
            .map(|verdict| verdict.threshold)
            .collect();
        let all_done = runners.iter().all(|runner| runner.state == RunnerState::Done);
        let (ending, message) = match self.run.state {
            State::Stopping => (Ending::of(self.run.ending), self.run.message.clone()),
            _ if !all_done => (Ending::Lost, "Its runners are gone".to_owned()),
            _ if missed.is_empty() => (Ending::Completed, "Completed".to_owned()),
            _ => (Ending::Failed, format!("Missed {}", missed.join(", "))),
        };
        let start = self.run.start_at.unwrap_or(self.run.queued_at).0;
        let report = serde_json::to_string(&Report::new(&self.plan, self.kind, start, &self.tally))?;
        let ended =
            lifecycle::finish(&self.tests.inner.context.database, &self.run, ending, &message, &report)
                .await?;
        if let Transition::Applied(_) = ended {
            metrics::ended(ending);
        }
        let progress = if ending == Ending::Completed { 100.0 } else { self.shown().progress };
        self.tests.show(&self.run.id, Shown { progress, ..self.shown() }).await;
        Ok(Go::Over)
    }

    /// Merges the seconds that all runners have written, and shows them.
    async fn merge(&mut self, since: Since) -> Result<(), Error> {
        let database = self.tests.inner.context.database.clone();
        // Before the seconds: a runner that is done by now has written all of them.
        let runners = self.tests.runners(&self.run).await?;
        let mut reader = SecondReader::new(&self.run, self.next);
        while let Some(MergedSecond { second, nodes }) = reader.next(&database).await? {
            let is_complete = runners
                .iter()
                .all(|runner| runner.state != RunnerState::Working || nodes.contains(&runner.node));
            if !is_complete {
                break;
            }
            self.tally.add(&second);
            self.next = second.second + 1;
            if since == Since::Now {
                self.show_second().await;
            }
        }
        Ok(())
    }

    async fn show_second(&self) {
        let Some(point) = self.tally.points().last() else { return };
        let start = self.run.start_at.unwrap_or(self.run.queued_at).0;
        let (failed, shown) = (self.tally.failed(), self.shown());
        let succeeded = self.tally.requests() - failed;
        let at = start + i64::from(point.second + 1) * 1000;
        let sample = Sample { point, at, succeeded, failed };
        let live = LiveSecond {
            at,
            state: self.run.state,
            progress: shown.progress,
            total_succeeded: succeeded,
            total_failed: failed,
            point: point.clone(),
        };
        let live = [serde_json::to_string(&live).unwrap_or_default()];
        self.view("a second is not shown", async {
            self.tests.views().publish(&self.run, shown, &sample).await?;
            self.tests.logs().append(&self.run.id, Ring::Seconds, &live).await
        })
        .await;
        self.tests.changed();
    }

    /// Says once that the numbers are the generator's own, as soon as they are.
    async fn warn(&mut self) {
        let Some(reason) = self.tally.generator_limited().filter(|_| !self.warned) else { return };
        self.warned = true;
        let at = jiff::Timestamp::now().as_millisecond();
        let line = [Line::new(at, Level::Warn, format!("The generator is the bottleneck: {reason}"))];
        self.view("a warning is not logged", self.tests.logs().write(&self.run.id, &line)).await;
    }

    async fn show_active(&self) {
        self.view("a run is not listed", self.tests.views().activate(&self.run.id)).await;
    }

    /// Writes a view. A store that is away must not cost the conductor its lease.
    async fn view(&self, trouble: &str, write: impl Future<Output = Result<(), Error>>) {
        match tokio::time::timeout(VIEW_PATIENCE, write).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(run = %self.run.id, %error, "{trouble}"),
            Err(_) => tracing::warn!(run = %self.run.id, "{trouble}: the store takes too long"),
        }
    }

    fn shown(&self) -> Shown {
        let seconds = self.plan.duration().as_secs_f64().max(1.0);
        let planned = self.plan.target_users(self.kind);
        let users = self.tally.points().last().map_or(0, |point| point.users);
        let peak = self.tally.points().iter().map(|point| point.users).max().unwrap_or(0);
        Shown {
            users,
            // An open plan names no number of users: it is what it turns out to be.
            target_users: planned.max(u32::try_from(peak).unwrap_or(u32::MAX)),
            progress: (f64::from(self.tally.seconds()) / seconds * 100.0).min(100.0),
        }
    }
}

enum Go {
    On,
    Over,
}
