//! A dry run: one virtual user runs each scenario once, without think times, and every request is reported with its checks
//! and extracted values. Nothing is stored.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::context::WorkerContext;
use super::user::{User, view};
use super::{Control, Job, Share, TargetError, Targets};
use crate::plan::{Check, Plan};
use crate::results::second::Fault;

/// A user waits for the result, so a dry run ends after this time.
const MAX_DURATION: Duration = Duration::from_secs(20);
/// Maximum length of a URL and of an extracted value in the result.
const MAX_CHARS: usize = 500;

/// The result of a dry run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LoadDryRun))]
pub struct DryRun {
    /// The name of the plan.
    pub plan: String,
    pub run_type: String,
    /// The requests in the order in which they were sent.
    pub steps: Vec<DryRunStep>,
    /// The steps that were not run, because an earlier step of their scenario failed or the time was over.
    pub skipped: Vec<String>,
}

/// A request of a dry run, and its response.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LoadDryRunStep))]
pub struct DryRunStep {
    pub scenario: String,
    pub step: String,
    pub method: String,
    /// With the values of its variables.
    pub url: String,
    /// Null if there was no complete response.
    pub status: Option<u16>,
    pub duration_ms: f64,
    /// Size of the response.
    pub bytes: u64,
    /// Why the step failed; null if it passed.
    pub failure: Option<String>,
    /// The checks of the plan; empty without a response.
    pub checks: Vec<DryRunCheck>,
    /// The values that the step extracts; empty without a response.
    pub values: Vec<DryRunValue>,
}

/// A check of a response.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LoadDryRunCheck))]
pub struct DryRunCheck {
    pub check: String,
    pub passed: bool,
}

/// A variable that a step sets.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LoadDryRunValue))]
pub struct DryRunValue {
    pub name: String,
    /// Null if the response does not have it.
    pub value: Option<String>,
}

impl DryRun {
    /// Runs the steps of a run type once. Targets are checked as for a run.
    pub async fn run(plan: Plan, run_type: usize, targets: &Targets) -> Result<Self, TargetError> {
        let targets = targets.resolve(&plan, run_type).await?;
        let job = Job {
            plan: Arc::new(plan),
            run_type,
            share: Share::WHOLE,
            threads: 1,
            seed: 0,
            start: Instant::now(),
            targets,
        };
        let end = job.start + MAX_DURATION;
        // The receiver of events is dropped: the result has what they say.
        let (events, _) = mpsc::channel(1);
        let context =
            Arc::new(WorkerContext::new(&job, Share::WHOLE, Control::new().clock(job.start), events));
        let mut result = Self {
            plan: job.plan.name.clone(),
            run_type: job.plan.run_types[run_type].name.clone(),
            steps: Vec::new(),
            skipped: Vec::new(),
        };
        for scenario in 0..job.plan.scenarios.len() {
            result.run_scenario(&context, scenario, end).await;
        }
        Ok(result)
    }

    /// Whether all steps were run and passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.skipped.is_empty() && self.steps.iter().all(|step| step.failure.is_none())
    }

    async fn run_scenario(&mut self, context: &Arc<WorkerContext>, scenario: usize, end: Instant) {
        let plan = &context.plan;
        let mut user = User::new(context, scenario);
        user.reset(0);
        let mut failed = false;
        for index in &context.steps[scenario] {
            if failed || Instant::now() >= end {
                self.skipped.push(plan.steps[*index].name.clone());
                continue;
            }
            if let Some(throttle) = &context.throttle {
                throttle.acquire().await;
            }
            let step = user.try_step(*index, end).await;
            failed = step.failure.is_some();
            self.steps.push(DryRunStep { scenario: plan.scenarios[scenario].name.clone(), ..step });
        }
    }
}

impl User {
    /// Sends the request of a step and reports it in detail.
    async fn try_step(&mut self, index: usize, end: Instant) -> DryRunStep {
        let plan = Arc::clone(&self.context.plan);
        let step = &plan.steps[index];
        let url = format!("{}{}", plan.origins[step.request.origin], step.request.path.fill(&self.values));
        let begun = Instant::now();
        let outcome = tokio::time::timeout_at(end.into(), self.exchange(step, begun)).await;
        let outcome = outcome.unwrap_or(Err(Fault::Timeout));
        let took = begun.elapsed();
        let (mut checks, mut values) = (Vec::new(), Vec::new());
        if let Some(response) =
            outcome.as_ref().ok().and_then(|received| view(&self.connections, step, received, took))
        {
            let check =
                |check: &Check| DryRunCheck { check: check.to_string(), passed: check.holds(&response) };
            checks.extend(step.checks.iter().map(check));
            values.extend(step.extract.iter().map(|extraction| DryRunValue {
                name: plan.variables.name(extraction.variable).to_owned(),
                value: extraction.take(&response).map(|value| shorten(&value)),
            }));
        }
        let fault = self.conclude(step, &outcome, took);
        let received = outcome.as_ref().ok();
        DryRunStep {
            scenario: String::new(),
            step: step.name.clone(),
            method: step.request.method.clone(),
            url: shorten(&url),
            status: received.map(|received| received.head.status),
            duration_ms: took.as_secs_f64() * 1000.0,
            bytes: received.map_or(0, |received| received.bytes),
            failure: fault.map(|fault| fault.describe(&plan, index)),
            checks,
            values,
        }
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
