//! The report of a run: for people, for programs, for CI.

mod html;
mod junit;
mod text;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::plan::Plan;
use crate::results::histogram::{Spread, Summary};
use crate::results::totals::{Point, Tally, Verdict, per_cent};

/// A chart has no room for more.
const MOST_POINTS: usize = 600;
const BARS: usize = 24;

/// Everything worth knowing about a run.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, ToSchema)]
#[schema(as = LoadReport)]
pub struct Report {
    pub name: String,
    pub run_type: String,
    /// Unix milliseconds.
    pub started_at: i64,
    pub seconds: u32,
    pub requests: u64,
    pub failed: u64,
    /// Per cent.
    pub error_rate: f64,
    /// Requests per second.
    pub rate: f64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// From the intended start, in milliseconds: what a user of the system under test waits.
    pub latency: Summary,
    /// From the actual start.
    pub latency_actual: Summary,
    /// How late the generator itself was.
    pub slip: Summary,
    /// Why the numbers tell of the generator rather than of its target, if they do.
    pub generator_limited: Option<String>,
    pub steps: Vec<StepReport>,
    pub faults: Vec<FaultCount>,
    pub thresholds: Vec<Verdict>,
    /// The latencies of the whole run.
    pub histogram: Vec<Bar>,
    pub points: Vec<Point>,
}

/// One step.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, ToSchema)]
#[schema(as = LoadStepReport)]
pub struct StepReport {
    pub name: String,
    pub group: Option<String>,
    pub requests: u64,
    pub failed: u64,
    pub latency: Summary,
    pub latency_actual: Summary,
}

/// Why requests failed.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, ToSchema)]
#[schema(as = LoadFaultCount)]
pub struct FaultCount {
    pub step: String,
    pub what: String,
    pub count: u64,
}

/// One bar of the histogram.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, ToSchema)]
#[schema(as = LoadBar)]
pub struct Bar {
    /// Latencies up to here, in milliseconds.
    pub up_to: f64,
    pub count: u64,
}

impl Report {
    #[must_use]
    pub fn new(plan: &Plan, run_type: usize, started_at: i64, tally: &Tally) -> Self {
        let seconds = tally.seconds();
        let step = |(index, seen): (usize, &crate::StepSecond)| StepReport {
            name: plan.steps[index].name.clone(),
            group: plan.steps[index].group.clone(),
            requests: seen.intended.count(),
            failed: seen.failed,
            latency: seen.intended.summary(),
            latency_actual: seen.actual.summary(),
        };
        let sum = |field: fn(&crate::StepSecond) -> u64| tally.steps().iter().map(field).sum::<u64>();
        Self {
            name: plan.name.clone(),
            run_type: plan.run_types[run_type].name.clone(),
            started_at,
            seconds,
            requests: tally.requests(),
            failed: tally.failed(),
            error_rate: per_cent(tally.failed(), tally.requests()),
            rate: tally.requests() as f64 / tally.lasted(plan),
            bytes_in: sum(|step| step.bytes_in),
            bytes_out: sum(|step| step.bytes_out),
            latency: tally.intended().summary(),
            latency_actual: tally.actual().summary(),
            slip: tally.slip().summary(),
            generator_limited: tally.generator_limited(),
            steps: tally.steps().iter().enumerate().map(step).collect(),
            faults: faults(plan, tally),
            thresholds: tally.verdicts(plan),
            histogram: bars(tally.intended()),
            points: thin(tally.points()),
        }
    }

    /// Whether all thresholds were met.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.thresholds.iter().all(|verdict| verdict.met)
    }
}

fn faults(plan: &Plan, tally: &Tally) -> Vec<FaultCount> {
    let mut faults: Vec<FaultCount> = Vec::new();
    for (index, step) in tally.steps().iter().enumerate() {
        faults.extend(step.faults.iter().map(|(fault, count)| FaultCount {
            step: plan.steps[index].name.clone(),
            what: fault.describe(plan, index),
            count: *count,
        }));
    }
    faults.sort_by_key(|fault| std::cmp::Reverse(fault.count));
    faults
}

/// Bars of equal width on a logarithmic scale, from the fastest to the slowest.
fn bars(latencies: &Spread) -> Vec<Bar> {
    if latencies.count() == 0 {
        return Vec::new();
    }
    let (low, high) = (latencies.min_us().max(1) as f64, latencies.max_us().max(2) as f64 * 1.001);
    let factor = (high / low).powf(1.0 / BARS as f64).max(1.000_001);
    let mut bars: Vec<Bar> =
        (1..=BARS).map(|n| Bar { up_to: low * factor.powi(n as i32) / 1000.0, count: 0 }).collect();
    for (us, count) in latencies.buckets() {
        let bar = ((*us as f64).max(low) / low).ln() / factor.ln();
        bars[(bar as usize).min(BARS - 1)].count += count;
    }
    bars
}

/// At most so many points, each standing for as many seconds as it has to. The worst of them is shown, never an
/// average that hides it.
fn thin(points: &[Point]) -> Vec<Point> {
    let every = points.len().div_ceil(MOST_POINTS).max(1);
    let chunk = |chunk: &[Point]| {
        let worst = chunk.iter().max_by(|a, b| a.latency.p99.total_cmp(&b.latency.p99)).unwrap_or(&chunk[0]);
        let mut heat = vec![0; worst.heat.len()];
        chunk.iter().for_each(|point| heat.iter_mut().zip(&point.heat).for_each(|(sum, n)| *sum += n));
        Point {
            second: chunk[0].second,
            requests: chunk.iter().map(|point| point.requests).sum::<u64>() / chunk.len() as u64,
            failed: chunk.iter().map(|point| point.failed).sum::<u64>().div_ceil(chunk.len() as u64),
            users: chunk.iter().map(|point| point.users).max().unwrap_or(0),
            latency: worst.latency,
            heat,
        }
    };
    points.chunks(every).map(chunk).collect()
}
