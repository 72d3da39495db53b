//! The totals of a run, and its timeline.

use std::time::Duration;

use crate::plan::{Plan, Threshold, ThresholdMetric};
use crate::results::histogram::{LatencyHistogram, LatencySummary};
use crate::results::second::{Backoffs, Second, StepSecond};

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
    failures: LatencyHistogram,
    slip: LatencyHistogram,
    arrivals: u64,
    queued_arrivals: u64,
    backoffs: Backoffs,
    /// The time of the run, without pauses.
    ran: Duration,
    points: Vec<TimelinePoint>,
}

/// One second of the timeline.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LoadPoint))]
pub struct TimelinePoint {
    pub second: u32,
    pub requests: u64,
    pub failed: u64,
    pub users: u64,
    /// How long the run was active in this second: less than 1000 if it was paused or ended in it.
    #[serde(default = "whole_second")]
    pub ran_ms: u32,
    /// Of successful requests, from the intended start, in milliseconds.
    pub latency: LatencySummary,
    /// The number of successful requests in each row of the heat map.
    pub heat: Vec<u64>,
}

/// For points that were stored without it.
fn whole_second() -> u32 {
    1000
}

/// The result of a threshold.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LoadVerdict))]
pub struct ThresholdResult {
    pub threshold: String,
    /// Without a value, the threshold is missed: no request has the measured property.
    pub value: Option<f64>,
    /// The unit of the value: `ms`, `%` or `/s`.
    #[serde(default)]
    pub unit: String,
    pub met: bool,
}

impl ThresholdResult {
    /// The value with its unit, or why there is none.
    #[must_use]
    pub fn measured(&self) -> String {
        match self.value {
            Some(value) => format!("{value:.2} {}", self.unit),
            None if self.unit == "%" => "no request".to_owned(),
            None => "no successful request".to_owned(),
        }
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
            self.failures.merge(&measured.failures);
        }
        let latencies = second.intended();
        self.intended.merge(&latencies);
        self.slip.merge(&second.generator.slip);
        self.arrivals += second.generator.arrivals;
        self.queued_arrivals += second.generator.queued_arrivals;
        self.backoffs.add(second.generator.backoffs);
        self.ran += second.generator.ran;
        self.points.push(TimelinePoint {
            second: second.second,
            requests: second.requests(),
            failed: second.failed(),
            users: second.generator.active_users,
            ran_ms: u32::try_from(second.generator.ran.as_millis()).unwrap_or(1000),
            latency: latencies.summary(),
            heat: heat(&latencies),
        });
    }

    #[must_use]
    pub fn requests(&self) -> u64 {
        self.intended.count() + self.failures.count()
    }

    #[must_use]
    pub fn failed(&self) -> u64 {
        self.steps.iter().map(|step| step.failed).sum()
    }

    #[must_use]
    pub fn seconds(&self) -> u32 {
        self.points.last().map_or(0, |point| point.second + 1)
    }

    /// Requests per second, over the time that the run was active. The time of responses after the end of the plan does not
    /// count.
    #[must_use]
    pub fn rate_of(&self, requests: u64, plan: &Plan) -> f64 {
        let seconds = self.ran.min(plan.duration()).as_secs_f64();
        if seconds > 0.0 { requests as f64 / seconds } else { 0.0 }
    }

    #[must_use]
    pub fn points(&self) -> &[TimelinePoint] {
        &self.points
    }

    #[must_use]
    pub fn steps(&self) -> &[StepSecond] {
        &self.steps
    }

    /// Latency of successful requests, from the intended start.
    #[must_use]
    pub fn intended(&self) -> &LatencyHistogram {
        &self.intended
    }

    /// Latency of successful requests, from the actual start.
    #[must_use]
    pub fn actual(&self) -> &LatencyHistogram {
        &self.actual
    }

    /// Latency of failed requests, from the intended start.
    #[must_use]
    pub fn failures(&self) -> &LatencyHistogram {
        &self.failures
    }

    /// How often and how long users waited after connection failures.
    #[must_use]
    pub fn backoffs(&self) -> Backoffs {
        self.backoffs
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
            return Some(format!("1 % of the iterations started at least {ms:.1} ms late"));
        }
        let (queued, arrivals) = (self.queued_arrivals, self.arrivals);
        let share = queued as f64 / arrivals.max(1) as f64;
        (share > QUEUED_LIMIT)
            .then(|| format!("{queued} of {arrivals} iterations had to wait for a free user"))
    }

    /// The result so far of each threshold that applies to a run type.
    #[must_use]
    pub fn threshold_results(&self, plan: &Plan, run_type: usize) -> Vec<ThresholdResult> {
        plan.thresholds_of(run_type).map(|threshold| self.threshold_result(plan, threshold)).collect()
    }

    /// The threshold that aborts the run now, if one does. A threshold without any request so far does not.
    #[must_use]
    pub fn abort<'a>(&self, plan: &'a Plan, run_type: usize) -> Option<&'a Threshold> {
        plan.thresholds_of(run_type).find(|threshold| {
            let is_due = threshold
                .abort_after
                .is_some_and(|after| u64::from(self.seconds()) >= after.as_secs().max(1));
            is_due && self.measured(plan, threshold).0 > 0 && !self.threshold_result(plan, threshold).met
        })
    }

    /// The requests, the failed ones and the latencies that a threshold is about.
    fn measured(&self, plan: &Plan, threshold: &Threshold) -> (u64, u64, &LatencyHistogram) {
        let step = threshold.step.as_ref();
        match step.and_then(|name| plan.steps.iter().position(|step| step.name == *name)) {
            Some(step) => {
                let step = &self.steps[step];
                (step.requests(), step.failed, &step.intended)
            }
            None => (self.requests(), self.failed(), &self.intended),
        }
    }

    fn threshold_result(&self, plan: &Plan, threshold: &Threshold) -> ThresholdResult {
        let (requests, failed, latencies) = self.measured(plan, threshold);
        let ms = |value: f64| ((latencies.count() > 0).then_some(value / 1000.0), "ms");
        let (value, unit) = match threshold.metric {
            ThresholdMetric::Quantile(quantile) => ms(latencies.quantile_us(quantile) as f64),
            ThresholdMetric::MeanMs => ms(latencies.mean_us()),
            ThresholdMetric::MaxMs => ms(latencies.max_us() as f64),
            ThresholdMetric::ErrorRate => ((requests > 0).then(|| per_cent(failed, requests)), "%"),
            ThresholdMetric::Rate => (Some(self.rate_of(requests, plan)), "/s"),
        };
        let met = value.is_some_and(|value| threshold.bound.holds(value));
        ThresholdResult { threshold: threshold.text.clone(), value, unit: unit.to_owned(), met }
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
             load = {{ users = 1, for = '9s' }}\nstep = [{{ name = 'a', request = 'GET /', group = 'g' }}]\n\
             [run.all]\n[run.rest]\ngroups = ['h']\n[[scenario]]\nname = 'r'\nload = {{ users = 1, for = '9s' }}\n\
             step = [{{ name = 'b', request = 'GET /', group = 'h' }}]"
        );
        Plan::read(&text, Format::Toml).unwrap()
    }

    /// A second with successful requests of one latency, and failed requests that took 1 µs.
    fn second(at: u32, us: u64, count: u64, failed: u64) -> Second {
        let latencies = LatencyHistogram::from_iter([(us, count)]);
        let failures = LatencyHistogram::from_iter([(1, failed)]);
        let step = StepSecond {
            intended: latencies.clone(),
            actual: latencies,
            failures,
            failed,
            ..StepSecond::default()
        };
        let mut second = Second { second: at, steps: [(0, step)].into(), ..Second::default() };
        second.generator.ran = Duration::from_secs(1);
        second
    }

    #[test]
    fn thresholds_apply_to_the_whole_run() {
        let plan = plan("'p99 < 300ms', 'a: error_rate <= 1%', 'rate > 20/s'");
        let mut totals = Totals::new(&plan);
        totals.add(&second(0, 100_000, 98, 1));
        totals.add(&second(1, 400_000, 1, 0));
        let results = totals.threshold_results(&plan, 0);
        let values: Vec<Option<f64>> = results.iter().map(|result| result.value).collect();
        assert_eq!(values, [Some(400.0), Some(1.0), Some(50.0), Some(1.0)]);
        totals.add(&second(2, 100_000, 100, 5));
        let met: Vec<bool> = totals.threshold_results(&plan, 0).iter().map(|result| result.met).collect();
        assert_eq!(met, [true, false, true, true]);
    }

    #[test]
    fn rate_uses_the_time_that_the_run_was_active() {
        let plan = plan("'rate > 39/s'");
        let mut totals = Totals::new(&plan);
        totals.add(&second(0, 10, 40, 0));
        totals.add(&second(1, 10, 40, 0));
        let mut last = second(2, 10, 1, 0);
        last.generator.ran = Duration::from_millis(25);
        totals.add(&last);
        let rate = totals.threshold_results(&plan, 0).remove(0);
        assert_eq!((rate.value, rate.met), (Some(40.0), true));
    }

    #[test]
    fn threshold_without_a_value_is_missed() {
        let plan = plan("'p95 < 50ms', 'b: mean < 1s', 'b: error_rate < 1%'");
        let mut totals = Totals::new(&plan);
        totals.add(&second(0, 10, 0, 20));
        let results = totals.threshold_results(&plan, 0);
        assert!(results.iter().all(|result| !result.met), "{results:?}");
        let measured: Vec<String> = results.iter().map(ThresholdResult::measured).collect();
        assert_eq!(measured, ["no successful request", "no successful request", "no request", "100.00 %"]);
    }

    #[test]
    fn threshold_of_a_step_applies_to_run_types_with_this_step() {
        let plan = plan("'a: p95 < 50ms', 'b: p95 < 50ms', 'error_rate < 1%'");
        let names = |run_type| {
            let results = Totals::new(&plan).threshold_results(&plan, run_type);
            results.into_iter().map(|result| result.threshold).collect::<Vec<_>>()
        };
        assert_eq!(names(plan.run_type("all").unwrap()).len(), 3);
        assert_eq!(names(plan.run_type("rest").unwrap()), ["b: p95 < 50ms", "error_rate < 1%"]);
    }

    #[test]
    fn generator_is_limited_if_one_arrival_in_a_thousand_waits() {
        let mut totals = Totals::default();
        let mut second = second(0, 10, 10_000, 0);
        (second.generator.arrivals, second.generator.queued_arrivals) = (1_000, 1);
        totals.add(&second);
        assert_eq!(totals.generator_limited(), None);
        // Two of 2,000 arrivals would be as many, but not two of 1,001, in spite of the many requests.
        (second.generator.arrivals, second.generator.queued_arrivals) = (1, 1);
        totals.add(&second);
        assert_eq!(
            totals.generator_limited().as_deref(),
            Some("2 of 1001 iterations had to wait for a free user")
        );
    }

    #[test]
    fn run_is_aborted_only_after_the_time_in_the_plan() {
        let plan = plan("{ that = 'error_rate < 50%', abort_after = '2s' }");
        let mut totals = Totals::new(&plan);
        totals.add(&second(0, 10, 0, 10));
        assert_eq!(totals.abort(&plan, 0), None);
        totals.add(&second(1, 10, 0, 10));
        assert!(totals.abort(&plan, 0).is_some());
    }

    #[test]
    fn run_without_a_response_yet_is_not_aborted() {
        let plan = plan("{ that = 'p95 < 5s', abort_after = '1s' }");
        let mut totals = Totals::new(&plan);
        totals.add(&second(0, 10, 0, 0));
        totals.add(&second(1, 10, 0, 0));
        assert_eq!(totals.abort(&plan, 0), None);
        totals.add(&second(2, 10, 0, 1));
        assert!(totals.abort(&plan, 0).is_some());
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
