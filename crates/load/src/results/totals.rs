//! A run as a whole, second after second.

use crate::plan::{Metric, Plan, Threshold};
use crate::results::histogram::{Spread, Summary};
use crate::results::second::{Second, StepSecond};

/// The generator counts as the bottleneck when it started more than one request in a hundred later than this.
const SLIP_LIMIT_US: u64 = 2_000;
/// … or when more than one arrival in a thousand found no free user.
const WAITED_LIMIT: f64 = 0.001;
/// The rows of the heat map: each holds latencies up to 10^(1/4) times those of the row below.
pub const HEAT_ROWS: usize = 24;

/// Everything that was measured so far.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    steps: Vec<StepSecond>,
    intended: Spread,
    actual: Spread,
    slip: Spread,
    waited: u64,
    points: Vec<Point>,
}

/// One second in a chart.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[schema(as = LoadPoint)]
pub struct Point {
    pub second: u32,
    pub requests: u64,
    pub failed: u64,
    pub users: u64,
    /// From the intended start, in milliseconds.
    pub latency: Summary,
    /// How many requests fell into each row of the heat map.
    pub heat: Vec<u64>,
}

/// How a threshold stands.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[schema(as = LoadVerdict)]
pub struct Verdict {
    pub threshold: String,
    pub value: f64,
    /// Of the value: `ms`, `%` or `/s`.
    #[serde(default)]
    pub unit: String,
    pub met: bool,
}

impl Verdict {
    /// The value with its unit.
    #[must_use]
    pub fn measured(&self) -> String {
        format!("{:.2} {}", self.value, self.unit)
    }
}

impl Tally {
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self { steps: vec![StepSecond::default(); plan.steps.len()], ..Self::default() }
    }

    /// Adds a second, of all runners.
    pub fn add(&mut self, second: &Second) {
        for (step, seen) in &second.steps {
            if let Some(step) = self.steps.get_mut(usize::from(*step)) {
                step.merge(seen);
            }
            self.actual.merge(&seen.actual);
        }
        let latencies = second.intended();
        self.intended.merge(&latencies);
        self.slip.merge(&second.general.slip);
        self.waited += second.general.waited;
        self.points.push(Point {
            second: second.second,
            requests: second.requests(),
            failed: second.failed(),
            users: second.general.active_users,
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

    /// How long the plan was carried out, in seconds: without the responses that came after its end.
    #[must_use]
    pub fn lasted(&self, plan: &Plan) -> f64 {
        f64::from(self.seconds()).min(plan.duration().as_secs_f64()).max(1.0)
    }

    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    #[must_use]
    pub fn steps(&self) -> &[StepSecond] {
        &self.steps
    }

    /// Latencies from the intended start.
    #[must_use]
    pub fn intended(&self) -> &Spread {
        &self.intended
    }

    /// Latencies from the actual start.
    #[must_use]
    pub fn actual(&self) -> &Spread {
        &self.actual
    }

    /// How late the generator itself was.
    #[must_use]
    pub fn slip(&self) -> &Spread {
        &self.slip
    }

    /// Why the numbers tell of the generator rather than of its target, if they do.
    #[must_use]
    pub fn generator_limited(&self) -> Option<String> {
        let slip = self.slip.quantile_us(0.99);
        if slip > SLIP_LIMIT_US {
            let ms = slip as f64 / 1000.0;
            return Some(format!("one request in a hundred started {ms:.1} ms late or more"));
        }
        let share = self.waited as f64 / self.requests().max(1) as f64;
        (share > WAITED_LIMIT).then(|| format!("{} arrivals found all users busy", self.waited))
    }

    /// How each threshold of the plan stands now.
    #[must_use]
    pub fn verdicts(&self, plan: &Plan) -> Vec<Verdict> {
        plan.thresholds.iter().map(|threshold| self.verdict(plan, threshold)).collect()
    }

    /// The threshold that ends the run now, if one does.
    #[must_use]
    pub fn abort<'a>(&self, plan: &'a Plan) -> Option<&'a Threshold> {
        plan.thresholds.iter().find(|threshold| {
            let due = threshold
                .abort_after
                .is_some_and(|after| u64::from(self.seconds()) >= after.as_secs().max(1));
            due && !self.verdict(plan, threshold).met
        })
    }

    fn verdict(&self, plan: &Plan, threshold: &Threshold) -> Verdict {
        let step =
            threshold.step.as_ref().and_then(|name| plan.steps.iter().position(|step| step.name == *name));
        let (latencies, failed) = match step {
            Some(step) => (&self.steps[step].intended, self.steps[step].failed),
            None => (&self.intended, self.failed()),
        };
        let (value, unit) = match threshold.metric {
            Metric::Quantile(quantile) => (latencies.quantile_us(quantile) as f64 / 1000.0, "ms"),
            Metric::MeanMs => (latencies.mean_us() / 1000.0, "ms"),
            Metric::MaxMs => (latencies.max_us() as f64 / 1000.0, "ms"),
            Metric::ErrorRate => (per_cent(failed, latencies.count()), "%"),
            Metric::Rate => (latencies.count() as f64 / self.lasted(plan), "/s"),
        };
        let (threshold, met) = (threshold.text.clone(), threshold.bound.holds(value));
        Verdict { threshold, value, unit: unit.to_owned(), met }
    }
}

/// A part in per cent; of nothing, nothing.
#[must_use]
pub fn per_cent(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 * 100.0 / of as f64 }
}

fn heat(latencies: &Spread) -> Vec<u64> {
    let mut rows = vec![0; HEAT_ROWS];
    for (us, count) in latencies.buckets() {
        let row = ((*us).max(1) as f64 / 10.0).log10() * 4.0;
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
        let latencies = Spread::new(vec![(us, count)], us * count, us, us);
        let step =
            StepSecond { intended: latencies.clone(), actual: latencies, failed, ..StepSecond::default() };
        Second { second: at, steps: [(0, step)].into(), ..Second::default() }
    }

    #[test]
    fn thresholds_are_held_against_the_whole_run() {
        let plan = plan("'p99 < 300ms', 'a: error_rate <= 1%', 'rate > 20/s'");
        let mut tally = Tally::new(&plan);
        tally.add(&second(0, 100_000, 99, 0));
        tally.add(&second(1, 400_000, 1, 1));
        let verdicts = tally.verdicts(&plan);
        let values: Vec<f64> = verdicts.iter().map(|verdict| verdict.value).collect();
        assert_eq!(values, [100.0, 1.0, 50.0]);
        assert!(verdicts.iter().all(|verdict| verdict.met));
        tally.add(&second(2, 400_000, 100, 5));
        let met: Vec<bool> = tally.verdicts(&plan).iter().map(|verdict| verdict.met).collect();
        assert_eq!(met, [false, false, true]);
    }

    #[test]
    fn a_run_is_only_aborted_after_the_time_that_the_plan_gives_it() {
        let plan = plan("{ that = 'error_rate < 50%', abort_after = '2s' }");
        let mut tally = Tally::new(&plan);
        tally.add(&second(0, 10, 10, 10));
        assert_eq!(tally.abort(&plan), None);
        tally.add(&second(1, 10, 10, 10));
        assert!(tally.abort(&plan).is_some());
    }

    #[test]
    fn a_late_generator_is_told_of() {
        let mut tally = Tally::default();
        let mut late = second(0, 10, 100, 0);
        late.general.slip = Spread::new(vec![(100, 98), (5_000, 2)], 19_800, 100, 5_000);
        tally.add(&late);
        assert!(tally.generator_limited().unwrap().contains("5.0 ms late"));
    }
}
