//! A run without a server: the plan, this machine, and nobody else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Error;
use crate::generator::{Generator, Job, Share, Targets};
use crate::plan::Plan;
use crate::results::report::Report;
use crate::results::totals::Tally;

/// So long the threads may take to be ready.
const LEAD: Duration = Duration::from_millis(50);

/// A run in this process.
#[derive(Debug)]
pub struct LocalRun {
    plan: Arc<Plan>,
    kind: usize,
    generator: Generator,
    tally: Tally,
    started_at: i64,
    aborted: Option<String>,
}

impl LocalRun {
    /// Starts a plan's kind of run on so many threads.
    pub async fn start(plan: Plan, kind: usize, targets: &Targets, threads: u32) -> Result<Self, Error> {
        let plan = Arc::new(plan);
        let route = targets.resolve(&plan, kind).await?;
        let job = Job {
            plan: Arc::clone(&plan),
            run_type: kind,
            share: Share::WHOLE,
            threads: threads.clamp(1, 64),
            seed: rand::random(),
            start: Instant::now() + LEAD,
            route,
        };
        let generator = Generator::start(&job)?;
        let started_at = jiff::Timestamp::now().as_millisecond();
        let tally = Tally::new(&plan);
        Ok(Self { plan, kind, generator, tally, started_at, aborted: None })
    }

    /// Waits for the next second; `None` when the run is over.
    pub async fn next(&mut self) -> Option<&Tally> {
        let second = self.generator.next().await?;
        self.tally.add(&second);
        if let Some(threshold) = self.tally.abort(&self.plan) {
            self.aborted.get_or_insert_with(|| threshold.text.clone());
            self.generator.orders().stop();
        }
        Some(&self.tally)
    }

    /// Ends the run at once.
    pub fn stop(&self) {
        self.generator.orders().stop();
    }

    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The threshold that ended the run before its time.
    #[must_use]
    pub fn aborted(&self) -> Option<&str> {
        self.aborted.as_deref()
    }

    /// What was measured.
    #[must_use]
    pub fn report(&self) -> Report {
        Report::new(&self.plan, self.kind, self.started_at, &self.tally)
    }
}
