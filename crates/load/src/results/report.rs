//! The report of a run, as JSON, HTML, text and JUnit XML.

mod html;
mod junit;
mod text;

use hob_load_generator::{
    LatencyHistogram, LatencySummary, LocalRun, ThresholdResult, TimelinePoint, Totals, per_cent,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::plan::Plan;
use crate::run::item::RunFigures;
use crate::run::{Run, Runner};

/// Of a chart.
const MAX_POINTS: usize = 600;
const HISTOGRAM_BARS: usize = 24;

/// The report of a run.
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
    /// Requests per second, over the time that the run was active.
    pub rate: f64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Of successful requests, from the intended start, in milliseconds: the time that a user waits.
    pub latency: LatencySummary,
    /// Of successful requests, from the actual start.
    pub latency_actual: LatencySummary,
    /// Of failed requests, from the intended start.
    #[serde(default)]
    pub latency_failed: LatencySummary,
    /// How often users waited after connection failures.
    #[serde(default)]
    pub backoffs: u64,
    /// The sum of these waits, in seconds.
    #[serde(default)]
    pub backoff_seconds: f64,
    /// How late the generator started its iterations.
    pub slip: LatencySummary,
    /// The runners of a run on a server.
    #[serde(default)]
    pub runners: Option<RunnerCount>,
    /// Why the generator was the bottleneck, if it was.
    pub generator_limited: Option<String>,
    pub steps: Vec<StepReport>,
    pub faults: Vec<FaultCount>,
    pub thresholds: Vec<ThresholdResult>,
    /// The latencies of successful requests in the whole run, from the intended start.
    pub histogram: Vec<HistogramBar>,
    pub points: Vec<TimelinePoint>,
}

/// How many nodes were to generate the load, and how many did.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq, ToSchema)]
#[schema(as = LoadRunnerCount)]
pub struct RunnerCount {
    pub requested: u32,
    pub joined: u32,
}

impl RunnerCount {
    pub(crate) fn of(run: &Run, runners: &[Runner]) -> Self {
        Self { requested: run.runners, joined: u32::try_from(runners.len()).unwrap_or(u32::MAX) }
    }

    /// A warning, if runners were missing.
    pub(crate) fn missing(self) -> Option<String> {
        let Self { requested, joined } = self;
        (joined < requested).then(|| {
            format!(
                "Only {joined} of the {requested} requested runners joined in time; they generated the whole load."
            )
        })
    }
}

/// The results of one step.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, ToSchema)]
#[schema(as = LoadStepReport)]
pub struct StepReport {
    pub name: String,
    pub group: Option<String>,
    pub requests: u64,
    pub failed: u64,
    pub latency: LatencySummary,
    pub latency_actual: LatencySummary,
    #[serde(default)]
    pub latency_failed: LatencySummary,
}

/// How often a step failed for one reason.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, ToSchema)]
#[schema(as = LoadFaultCount)]
pub struct FaultCount {
    pub step: String,
    /// The reason.
    pub what: String,
    pub count: u64,
}

/// One bar of the histogram.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, ToSchema)]
#[schema(as = LoadBar)]
pub struct HistogramBar {
    /// The upper bound, in milliseconds.
    pub up_to: f64,
    pub count: u64,
}

impl Report {
    /// The report of a run in this process.
    #[must_use]
    pub fn of(run: &LocalRun) -> Self {
        let started_at = i64::try_from(run.started_at()).unwrap_or(i64::MAX);
        Self::new(run.plan(), run.run_type(), started_at, run.totals())
    }

    #[must_use]
    pub fn new(plan: &Plan, run_type: usize, started_at: i64, totals: &Totals) -> Self {
        let seconds = totals.seconds();
        let step = |(index, measured): (usize, &crate::StepSecond)| StepReport {
            name: plan.steps[index].name.clone(),
            group: plan.steps[index].group.clone(),
            requests: measured.requests(),
            failed: measured.failed,
            latency: measured.intended.summary(),
            latency_actual: measured.actual.summary(),
            latency_failed: measured.failures.summary(),
        };
        let sum = |field: fn(&crate::StepSecond) -> u64| totals.steps().iter().map(field).sum::<u64>();
        Self {
            name: plan.name.clone(),
            run_type: plan.run_types[run_type].name.clone(),
            started_at,
            seconds,
            requests: totals.requests(),
            failed: totals.failed(),
            error_rate: per_cent(totals.failed(), totals.requests()),
            rate: totals.rate_of(totals.requests(), plan),
            bytes_in: sum(|step| step.bytes_in),
            bytes_out: sum(|step| step.bytes_out),
            latency: totals.intended().summary(),
            latency_actual: totals.actual().summary(),
            latency_failed: totals.failures().summary(),
            backoffs: totals.backoffs().count,
            backoff_seconds: totals.backoffs().total.as_secs_f64(),
            slip: totals.slip().summary(),
            runners: None,
            generator_limited: totals.generator_limited(),
            steps: totals.steps().iter().enumerate().map(step).collect(),
            faults: faults(plan, totals),
            thresholds: totals.threshold_results(plan, run_type),
            histogram: bars(totals.intended()),
            points: downsample(totals.points()),
        }
    }

    pub(crate) fn figures(&self) -> RunFigures {
        let Self { requests, failed, rate, .. } = *self;
        RunFigures { requests, failed, rate, p95: self.latency.p95 }
    }

    /// What a reader has to know to interpret the results.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        warnings.extend(self.runners.and_then(RunnerCount::missing));
        if self.backoffs > 0 {
            warnings.push(format!(
                "Users backed off {} times after connection failures, {:.1} s in total: the load was lower than planned.",
                self.backoffs, self.backoff_seconds
            ));
        }
        if let Some(reason) = &self.generator_limited {
            warnings
                .push(format!("Generator-limited: {reason}. The latencies include delays of the generator."));
        }
        warnings
    }

    /// Whether all thresholds were met.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.thresholds.iter().all(|result| result.met)
    }
}

fn faults(plan: &Plan, totals: &Totals) -> Vec<FaultCount> {
    let mut faults: Vec<FaultCount> = Vec::new();
    for (index, step) in totals.steps().iter().enumerate() {
        faults.extend(step.faults.iter().map(|(fault, count)| FaultCount {
            step: plan.steps[index].name.clone(),
            what: fault.describe(plan, index),
            count: *count,
        }));
    }
    faults.sort_by_key(|fault| std::cmp::Reverse(fault.count));
    faults
}

/// Bars of equal width on a logarithmic scale, from the minimum to the maximum.
fn bars(latencies: &LatencyHistogram) -> Vec<HistogramBar> {
    if latencies.count() == 0 {
        return Vec::new();
    }
    let (low, high) = (latencies.min_us().max(1) as f64, latencies.max_us().max(2) as f64 * 1.001);
    let factor = (high / low).powf(1.0 / HISTOGRAM_BARS as f64).max(1.000_001);
    let mut bars: Vec<HistogramBar> = (1..=HISTOGRAM_BARS)
        .map(|n| HistogramBar { up_to: low * factor.powi(n as i32) / 1000.0, count: 0 })
        .collect();
    for (us, count) in latencies.buckets() {
        let bar = ((us as f64).max(low) / low).ln() / factor.ln();
        bars[(bar as usize).min(HISTOGRAM_BARS - 1)].count += count;
    }
    bars
}

/// At most [`MAX_POINTS`] points. A point that stands for several seconds shows the latency of the slowest: an average
/// would hide it.
fn downsample(points: &[TimelinePoint]) -> Vec<TimelinePoint> {
    let every = points.len().div_ceil(MAX_POINTS).max(1);
    let chunk = |chunk: &[TimelinePoint]| {
        let worst = chunk.iter().max_by(|a, b| a.latency.p99.total_cmp(&b.latency.p99)).unwrap_or(&chunk[0]);
        let mut heat = vec![0; worst.heat.len()];
        chunk.iter().for_each(|point| heat.iter_mut().zip(&point.heat).for_each(|(sum, n)| *sum += n));
        TimelinePoint {
            second: chunk[0].second,
            requests: chunk.iter().map(|point| point.requests).sum::<u64>() / chunk.len() as u64,
            failed: chunk.iter().map(|point| point.failed).sum::<u64>().div_ceil(chunk.len() as u64),
            users: chunk.iter().map(|point| point.users).max().unwrap_or(0),
            ran_ms: chunk.iter().map(|point| point.ran_ms).max().unwrap_or(0),
            latency: worst.latency,
            heat,
        }
    };
    points.chunks(every).map(chunk).collect()
}
