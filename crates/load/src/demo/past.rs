//! Runs of the demo plan on earlier days. In one of them the search is slower than before, and the run fails.

use std::f64::consts::TAU;
use std::time::Duration;

use hob_database::{Transaction, UnixMs};
use hob_load_generator::{
    Bucket, Fault, GeneratorSecond, Histogram, LatencyHistogram, Second, StepSecond, Totals,
};
use hob_service::noise;

use crate::Error;
use crate::database::past::{self, PastRun};
use crate::database::{runners, runs};
use crate::keys::TestId;
use crate::load::Load;
use crate::plan::Plan;
use crate::plan::catalog::PlanId;
use crate::results::report::{Report, RunnerCount};
use crate::run::lifecycle::RunnerId;
use crate::run::{RunState, RunnerState};

const HOUR_MS: i64 = 3_600_000;

/// How long ago a run started, and how many times slower than usual each step was.
struct Past {
    hours_ago: i64,
    slower: [f64; 3],
    failing: f64,
}

const RUNS: [Past; 6] = [
    Past { hours_ago: 6 * 24 + 2, slower: [1.0, 1.0, 1.0], failing: 0.006 },
    Past { hours_ago: 4 * 24 + 2, slower: [1.0, 1.05, 1.0], failing: 0.007 },
    Past { hours_ago: 3 * 24 + 1, slower: [0.95, 1.0, 1.02], failing: 0.005 },
    Past { hours_ago: 2 * 24 + 2, slower: [1.1, 14.0, 1.6], failing: 0.021 },
    Past { hours_ago: 24 + 2, slower: [1.0, 1.3, 1.1], failing: 0.008 },
    Past { hours_ago: 5, slower: [0.95, 0.9, 0.95], failing: 0.004 },
];

/// The usual latency of each step in microseconds.
const TYPICAL_US: [f64; 3] = [4_600.0, 13_500.0, 27_500.0];
/// Parts of the requests, and how many times the usual latency they took.
const SPREAD: [(f64, f64); 7] =
    [(0.2, 0.6), (0.3, 0.85), (0.25, 1.1), (0.15, 1.5), (0.07, 2.1), (0.02, 3.2), (0.01, 11.0)];

/// Writes the runs and their reports, unless an earlier demo has written them.
pub(super) async fn write(load: &Load, plan_id: PlanId, plan: &Plan, run_type: usize) -> Result<(), Error> {
    let now = UnixMs::now();
    let context = &load.inner.context;
    for (number, past) in (1..).zip(&RUNS) {
        let started_at = UnixMs(now.0 - past.hours_ago * HOUR_MS);
        let Ok(id) = TestId::new(format!("demo-shop-{number}")) else { continue };
        let mut totals = Totals::new(plan);
        let seconds = plan.duration().as_secs();
        for second in 0..seconds {
            totals.add(&past.second(number, second, seconds));
        }
        let mut report = Report::new(plan, run_type, started_at.0, &totals);
        report.runners = Some(RunnerCount { requested: 1, joined: 1 });
        let missed = report.thresholds.iter().filter(|result| !result.met);
        let missed: Vec<String> = missed.map(|result| result.threshold.clone()).collect();
        let (state, message) = match missed.is_empty() {
            true => (RunState::Completed, "Completed".to_owned()),
            false => (RunState::Failed, format!("Missed {}", missed.join(", "))),
        };
        let run = PastRun {
            id: &id,
            plan: plan_id,
            run_type: &plan.run_types[run_type].name,
            users: plan.target_users(run_type),
            state,
            message: &message,
            node: context.node.as_str(),
            started_at,
            ended_at: started_at.plus(Duration::from_secs(seconds)),
        };
        let (json, figures) = (serde_json::to_string(&report)?, report.figures());
        let runner = RunnerId { run: id.clone(), epoch: 1, number: 0, node: run.node.to_owned() };
        let (run, runner, json) = (&run, &runner, json.as_str());
        let work = |tx: Transaction| async move {
            if !past::insert(&tx, run).await? {
                return Ok(());
            }
            runners::insert(&tx, run.id, 1, 0, run.node, run.ended_at).await?;
            runners::update(&tx, runner, RunnerState::Done, "", run.ended_at).await?;
            runs::insert_report(&tx, run.id, json, Some(figures)).await
        };
        context.database.write(work).await?;
    }
    Ok(())
}

impl Past {
    /// What was measured in one second of the run: the stages of the plan, with noise.
    fn second(&self, run: u64, second: u64, seconds: u64) -> Second {
        let chance = |number: u64| noise(run << 40 | second << 8 | number);
        let rate = match (second, seconds - second) {
            (0..10, _) => 4.0 * (second + 1) as f64,
            (_, ..=10) => 5.0 + 3.5 * (seconds - second) as f64,
            _ => 40.0 + 2.5 * (second as f64 / 9.0 * TAU).sin(),
        };
        let visitors = (rate * (0.9 + 0.2 * chance(0))) as u64;
        let mut measured = Second::new(u32::try_from(second).unwrap_or(u32::MAX));
        measured.generator = GeneratorSecond {
            ran: Duration::from_secs(1),
            active_users: visitors / 4 + 1 + (self.slower[1] / 3.0) as u64,
            slip: latencies(&[(120, visitors)]),
            arrivals: visitors,
            ..GeneratorSecond::default()
        };
        for (step, typical_us) in (0_u16..).zip(TYPICAL_US) {
            let factor = self.slower[usize::from(step)] * (0.9 + 0.2 * chance(u64::from(step) + 1));
            let failed = (visitors as f64 * self.failing * f64::from(step) + chance(10)) as u64;
            let mut left = visitors - failed;
            let mut parts = Vec::new();
            for (number, (share, times)) in SPREAD.iter().enumerate() {
                let count = ((visitors as f64 * share + chance(20 + number as u64)) as u64).min(left);
                let count = if number == 1 { count.max(left.min(visitors / 4)) } else { count };
                left -= count;
                parts.push(((typical_us * times * factor) as u64, count));
            }
            parts.push(((typical_us * factor) as u64, left));
            let mut measured_step = StepSecond {
                intended: latencies(&parts),
                actual: latencies(&parts),
                failures: latencies(&[((typical_us * factor) as u64, failed)]),
                failed,
                bytes_in: visitors * 168,
                bytes_out: visitors * 112,
                ..StepSecond::default()
            };
            if failed > 0 {
                measured_step.faults.insert(Fault::Status(503), failed);
            }
            measured.steps.insert(step, measured_step);
        }
        measured
    }
}

/// Latencies in microseconds, and how many requests had each of them.
fn latencies(parts: &[(u64, u64)]) -> LatencyHistogram {
    let mut histogram = Histogram::default();
    let measured: Vec<(u64, u64)> = parts.iter().copied().filter(|(_, count)| *count > 0).collect();
    for (us, count) in &measured {
        histogram.add(Bucket::of(*us), *count);
    }
    let sum_us = measured.iter().map(|(us, count)| us * count).sum();
    let times = || measured.iter().map(|(us, _)| *us);
    LatencyHistogram::new(histogram, sum_us, times().min().unwrap_or(0), times().max().unwrap_or(0))
}
