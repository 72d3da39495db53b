//! The totals of a run, and its timeline.

use crate::plan::{Plan, Threshold, ThresholdMetric};
use crate::results::histogram::{LatencyHistogram, LatencySummary};
use crate::results::second::{Second, StepSecond};

/// The generator counts as the bottleneck if its p99 slip exceeds this.
const SLIP_LIMIT_US: u64 = 2_000;
/// The generator also counts as the bottleneck if more than this share of the arrivals had to wait for a free user.
const QUEUED_LIMIT: f64 = 0.001;
/// The rows of the heat map. The upper bound of each row is 10^(1/4) times that of the row below.
pub const HEAT_ROWS: usize = 24;

/// The measurements of a run so far.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    steps: Vec<StepSecond>,
    intended: LatencyHistogram,
    actual: LatencyHistogram,
    slip: LatencyHistogram,
    queued_arrivals: u64,
    points: Vec<TimelinePoint>,
}

/// One second of the timeline.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[schema(as = LoadPoint)]
pub struct TimelinePoint {
    pub second: u32,
    pub requests: u64,
    pub failed: u64,
    pub users: u64,
    /// From the intended start, in milliseconds.
    pub latency: LatencySummary,
    /// The number of requests in each row of the heat map.
    pub heat: Vec<u64>,
}

/// The result of a threshold.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[schema(as = LoadVerdict)]
pub struct ThresholdResult {
    pub threshold: String,
    pub value: f64,
    /// The unit of the value: `ms`, `%` or `/s`.
    #[serde(default)]
    pub unit: String,
    pub met: bool,
}

impl ThresholdResult {
    /// The value with its unit.
    #[must_use]
    pub fn measured(&self) -> String {
        format!("{:.2} {}", self.value, self.unit)
    }
}

impl Totals {
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self { steps: vec![StepSecond::default(); plan.steps.len()], ..Self::default() }
    }

    /// Adds a second that was merged over all runners.
    pub fn add(&mut self, second: &Second) {
        for (step, measured) in &second.steps {
            if let Some(step) = self.steps.get_mut(usize::from(*step)) {
                step.merge(measured);
            }
            self.actual.merge(&measured.actual);
        }
        let latencies = second.intended();
        self.intended.merge(&latencies);
        self.slip.merge(&second.generator.slip);
        self.queued_arrivals += second.generator.queued_arrivals;
        self.points.push(TimelinePoint {
            second: second.second,
            requests: second.requests(),
            failed: second.failed(),
            users: second.generator.active_users,
            latency: latencies.summary(),
            heat: heat(&latencies),
        });
    }

    #[must_use]
    pub fn requests(&self) -> u64 {
        self.intended.count()
    }

    #[must_use]
    pub fn failed(&self) -> u64 {
        self.steps.iter().map(|step| step.failed).sum()
    }

    #[must_use]
    pub fn seconds(&self) -> u32 {
        self.points.last().map_or(0, |point| point.second + 1)
    }

    /// The duration of the run in seconds, without responses after the end of the plan.
    #[must_use]
    pub fn duration(&self, plan: &Plan) -> f64 {
        f64::from(self.seconds()).min(plan.duration().as_secs_f64()).max(1.0)
    }

    #[must_use]
    pub fn points(&self) -> &[TimelinePoint] {
        &self.points
    }

    #[must_use]
    pub fn steps(&self) -> &[StepSecond] {
        &self.steps
    }

    /// Latency from the intended start.
    #[must_use]
    pub fn intended(&self) -> &LatencyHistogram {
        &self.intended
    }

    /// Latency from the actual start.
    #[must_use]
    pub fn actual(&self) -> &LatencyHistogram {
        &self.actual
    }

    /// How late the generator started its iterations.
    #[must_use]
    pub fn slip(&self) -> &LatencyHistogram {
        &self.slip
    }

    /// Why the generator was the bottleneck, if it was.
    #[must_use]
    pub fn generator_limited(&self) -> Option<String> {
        let slip = self.slip.quantile_us(0.99);
        if slip > SLIP_LIMIT_US {
            let ms = slip as f64 / 1000.0;
            return Some(format!("1 % of the requests started at least {ms:.1} ms late"));
        }
        let share = self.queued_arrivals as f64 / self.requests().max(1) as f64;
        (share > QUEUED_LIMIT)
            .then(|| format!("{} iterations had to wait for a free user", self.queued_arrivals))
    }

    /// The result of each threshold of the plan so far.
    #[must_use]
    pub fn threshold_results(&self, plan: &Plan) -> Vec<ThresholdResult> {
        plan.thresholds.iter().map(|threshold| self.threshold_result(plan, threshold)).collect()
    }

    /// The threshold that aborts the run now, if one does.
    #[must_use]
    pub fn abort<'a>(&self, plan: &'a Plan) -> Option<&'a Threshold> {
        plan.thresholds.iter().find(|threshold| {
            let due = threshold
                .abort_after
                .is_some_and(|after| u64::from(self.seconds()) >= after.as_secs().max(1));
            due && !self.threshold_result(plan, threshold).met
        })
    }

    fn threshold_result(&self, plan: &Plan, threshold: &Threshold) -> ThresholdResult {
        let step =
            threshold.step.as_ref().and_then(|name| plan.steps.iter().position(|step| step.name == *name));
        let (latencies, failed) = match step {
            Some(step) => (&self.steps[step].intended, self.steps[step].failed),
            None => (&self.intended, self.failed()),
        };
        let (value, unit) = match threshold.metric {
            ThresholdMetric::Quantile(quantile) => (latencies.quantile_us(quantile) as f64 / 1000.0, "ms"),
            ThresholdMetric::MeanMs => (latencies.mean_us() / 1000.0, "ms"),
            ThresholdMetric::MaxMs => (latencies.max_us() as f64 / 1000.0, "ms"),
            ThresholdMetric::ErrorRate => (per_cent(failed, latencies.count()), "%"),
            ThresholdMetric::Rate => (latencies.count() as f64 / self.duration(plan), "/s"),
        };
        let (threshold, met) = (threshold.text.clone(), threshold.bound.holds(value));
        ThresholdResult { threshold, value, unit: unit.to_owned(), met }
    }
}

/// A share in per cent; 0 if the total is 0.
#[must_use]
pub fn per_cent(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { part as f64 * 100.0 / total as f64 }
}

fn heat(latencies: &LatencyHistogram) -> Vec<u64> {
    let mut rows = vec![0; HEAT_ROWS];
    for (us, count) in latencies.buckets() {
        let row = (us.max(1) as f64 / 10.0).log10() * 4.0;
        rows[(row.max(0.0) as usize).min(HEAT_ROWS - 1)] += count;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Format;

    fn plan(thresholds: &str) -> Plan {
        let text = format!(
            "name = 't'\ntarget = 'http://127.0.0.1:1'\nthresholds = [{thresholds}]\n[[scenario]]\nname = 's'\n\
             load = {{ users = 1, for = '9s' }}\nstep = [{{ name = 'a', request = 'GET /' }}]"
        );
        Plan::read(&text, Format::Toml).unwrap()
    }

    fn second(at: u32, us: u64, count: u64, failed: u64) -> Second {
        let latencies = LatencyHistogram::from_iter([(us, count)]);
        let step =
            StepSecond { intended: latencies.clone(), actual: latencies, failed, ..StepSecond::default() };
        Second { second: at, steps: [(0, step)].into(), ..Second::default() }
    }

    #[test]
    fn thresholds_apply_to_the_whole_run() {
        let plan = plan("'p99 < 300ms', 'a: error_rate <= 1%', 'rate > 20/s'");
        let mut totals = Totals::new(&plan);
        totals.add(&second(0, 100_000, 99, 0));
        totals.add(&second(1, 400_000, 1, 1));
        let results = totals.threshold_results(&plan);
        let values: Vec<f64> = results.iter().map(|result| result.value).collect();
        // A quantile is the upper bound of its bucket.
        assert_eq!(values, [100.031, 1.0, 50.0]);
        assert!(results.iter().all(|result| result.met));
        totals.add(&second(2, 400_000, 100, 5));
        let met: Vec<bool> = totals.threshold_results(&plan).iter().map(|result| result.met).collect();
        assert_eq!(met, [false, false, true]);
    }

    #[test]
    fn run_is_aborted_only_after_the_time_in_the_plan() {
        let plan = plan("{ that = 'error_rate < 50%', abort_after = '2s' }");
        let mut totals = Totals::new(&plan);
        totals.add(&second(0, 10, 10, 10));
        assert_eq!(totals.abort(&plan), None);
        totals.add(&second(1, 10, 10, 10));
        assert!(totals.abort(&plan).is_some());
    }

    #[test]
    fn late_generator_is_reported() {
        let mut totals = Totals::default();
        let mut late = second(0, 10, 100, 0);
        late.generator.slip = LatencyHistogram::from_iter([(100, 98), (5_000, 2)]);
        totals.add(&late);
        assert!(totals.generator_limited().unwrap().contains("5.0 ms late"));
    }
}
