//! A run in this process, without a server or a database: `hob load run` and `hob load quick`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::generator::{Generator, Job, Share, TargetError, Targets};
use crate::plan::Plan;
use crate::results::totals::Totals;

/// The time that the threads have to get ready.
const START_LEAD: Duration = Duration::from_millis(50);

/// A run in this process.
#[derive(Debug)]
pub struct LocalRun {
    plan: Arc<Plan>,
    run_type: usize,
    generator: Generator,
    totals: Totals,
    started_at: u64,
    aborted: Option<String>,
}

/// Why a run could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("cannot start the generator: {0}")]
    Generator(#[from] std::io::Error),
}

impl LocalRun {
    /// Starts a run type of a plan on 1 to 64 threads.
    pub async fn start(plan: Plan, run_type: usize, targets: &Targets, threads: u32) -> Result<Self, Error> {
        let plan = Arc::new(plan);
        let targets = targets.resolve(&plan, run_type).await?;
        let job = Job {
            plan: Arc::clone(&plan),
            run_type,
            share: Share::WHOLE,
            threads: threads.clamp(1, 64),
            seed: rand::random(),
            start: Instant::now() + START_LEAD,
            targets,
        };
        let generator = Generator::start(&job)?;
        let totals = Totals::new(&plan);
        Ok(Self { plan, run_type, generator, totals, started_at: hob_units::unix_ms(), aborted: None })
    }

    /// Waits for the next second and returns the totals; `None` when the run has ended.
    pub async fn next(&mut self) -> Option<&Totals> {
        let second = self.generator.next().await?;
        self.totals.add(&second);
        if let Some(threshold) = self.totals.abort(&self.plan, self.run_type) {
            self.aborted.get_or_insert_with(|| threshold.text.clone());
            self.generator.control().stop();
        }
        Some(&self.totals)
    }

    /// Ends the run without waiting for responses.
    pub fn stop(&self) {
        self.generator.control().stop();
    }

    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The index of the run type in [`Plan::run_types`].
    #[must_use]
    pub fn run_type(&self) -> usize {
        self.run_type
    }

    /// In Unix milliseconds.
    #[must_use]
    pub fn started_at(&self) -> u64 {
        self.started_at
    }

    /// Everything that was measured so far.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The threshold that aborted the run.
    #[must_use]
    pub fn aborted(&self) -> Option<&str> {
        self.aborted.as_deref()
    }
}
