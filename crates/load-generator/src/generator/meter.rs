//! Measures the requests of one thread per second, in constant memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::control::RunClock;
use crate::results::histogram::{LatencyHistogram, Recorder};
use crate::results::second::{Backoffs, Fault, GeneratorSecond, Second, StepSecond};

/// Longer latencies are recorded as this value. Timeouts are always shorter.
const MAX_US: u64 = 600_000_000;
const SECOND: Duration = Duration::from_secs(1);
/// A run ends a moment after the end of its plan, which does not make another second.
const MIN_LAST_SECOND: Duration = Duration::from_millis(20);

/// The result of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestOutcome {
    pub(crate) intended: Duration,
    pub(crate) actual: Duration,
    pub(crate) fault: Option<Fault>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

/// Measures the current second.
#[derive(Debug)]
pub(crate) struct Meter {
    clock: RunClock,
    second: u32,
    /// The time of the run that the closed seconds cover.
    covered: Duration,
    steps: Vec<Option<StepMeter>>,
    slip: LatencyRecorder,
    arrivals: u64,
    queued_arrivals: u64,
    backoffs: Backoffs,
    closed: Vec<Second>,
}

#[derive(Debug)]
struct StepMeter {
    intended: LatencyRecorder,
    actual: LatencyRecorder,
    /// Most steps never fail, so its memory is allocated when it is first needed.
    failures: Option<LatencyRecorder>,
    failed: u64,
    bytes_in: u64,
    bytes_out: u64,
    faults: BTreeMap<Fault, u64>,
}

/// Records a histogram, and also the exact sum, minimum and maximum, which the histogram would round.
#[derive(Debug)]
struct LatencyRecorder {
    recorder: Recorder,
    sum_us: u64,
    min_us: u64,
    max_us: u64,
}

impl Meter {
    pub(crate) fn new(clock: RunClock, steps: usize) -> Self {
        Self {
            clock,
            second: 0,
            covered: Duration::ZERO,
            steps: (0..steps).map(|_| None).collect(),
            slip: LatencyRecorder::new(),
            arrivals: 0,
            queued_arrivals: 0,
            backoffs: Backoffs::default(),
            closed: Vec::new(),
        }
    }

    /// Records a request that ended at `now`.
    pub(crate) fn record(&mut self, now: Instant, step: usize, outcome: RequestOutcome, active_users: u64) {
        self.roll(now, active_users);
        let meter = self.steps[step].get_or_insert_with(StepMeter::new);
        meter.bytes_in += outcome.bytes_in;
        meter.bytes_out += outcome.bytes_out;
        match outcome.fault {
            None => {
                meter.intended.record(outcome.intended);
                meter.actual.record(outcome.actual);
            }
            Some(fault) => {
                meter.failures.get_or_insert_with(LatencyRecorder::new).record(outcome.intended);
                meter.failed += 1;
                *meter.faults.entry(fault).or_default() += 1;
            }
        }
    }

    /// Records how late the generator started an iteration.
    pub(crate) fn record_slip(&mut self, slip: Duration) {
        self.slip.record(slip);
    }

    /// Counts an iteration of an open scenario that is due.
    pub(crate) fn record_arrival(&mut self) {
        self.arrivals += 1;
    }

    /// Records that a user waits after a connection failure.
    pub(crate) fn record_backoff(&mut self, delay: Duration) {
        self.backoffs.add(Backoffs { count: 1, total: delay });
    }

    /// Counts an arrival that has to wait for a free user.
    pub(crate) fn record_queued_arrival(&mut self) {
        self.queued_arrivals += 1;
    }

    /// Closes the seconds that have ended.
    pub(crate) fn roll(&mut self, now: Instant, active_users: u64) {
        let since_start = now.saturating_duration_since(self.clock.start());
        let second = u32::try_from(since_start.as_secs()).unwrap_or(u32::MAX);
        while self.second < second {
            self.close(now, active_users);
        }
    }

    /// The seconds that were closed since the last call.
    pub(crate) fn take(&mut self) -> Vec<Second> {
        std::mem::take(&mut self.closed)
    }

    /// Closes the current second, too, unless it has only just begun and is empty.
    pub(crate) fn finish(&mut self, now: Instant, active_users: u64) -> Vec<Second> {
        self.roll(now, active_users);
        self.close(now, active_users);
        let is_over = |second: &Second| {
            second.second > 0 && second.steps.is_empty() && second.generator.ran < MIN_LAST_SECOND
        };
        self.closed.pop_if(|second| is_over(second));
        self.take()
    }

    fn close(&mut self, now: Instant, active_users: u64) {
        // Seconds are closed a little late, and what is left over counts for the next one. Their sum is exact.
        let ran = self.clock.elapsed_at(now).saturating_sub(self.covered).min(SECOND);
        self.covered += ran;
        let mut second = Second::new(self.second);
        second.generator = GeneratorSecond {
            ran,
            active_users,
            slip: self.slip.drain(),
            arrivals: std::mem::take(&mut self.arrivals),
            queued_arrivals: std::mem::take(&mut self.queued_arrivals),
            backoffs: std::mem::take(&mut self.backoffs),
        };
        for (step, meter) in self.steps.iter_mut().enumerate() {
            let drained = meter.as_mut().and_then(StepMeter::drain);
            second.steps.extend(drained.map(|drained| (step as u16, drained)));
        }
        self.closed.push(second);
        self.second += 1;
    }
}

impl StepMeter {
    fn new() -> Self {
        Self {
            intended: LatencyRecorder::new(),
            actual: LatencyRecorder::new(),
            failures: None,
            failed: 0,
            bytes_in: 0,
            bytes_out: 0,
            faults: BTreeMap::new(),
        }
    }

    fn drain(&mut self) -> Option<StepSecond> {
        if self.intended.is_empty() && self.failed == 0 {
            return None;
        }
        Some(StepSecond {
            intended: self.intended.drain(),
            actual: self.actual.drain(),
            failures: self.failures.as_mut().map(LatencyRecorder::drain).unwrap_or_default(),
            failed: std::mem::take(&mut self.failed),
            bytes_in: std::mem::take(&mut self.bytes_in),
            bytes_out: std::mem::take(&mut self.bytes_out),
            faults: std::mem::take(&mut self.faults),
        })
    }
}

impl LatencyRecorder {
    fn new() -> Self {
        Self { recorder: Recorder::new(MAX_US), sum_us: 0, min_us: u64::MAX, max_us: 0 }
    }

    fn record(&mut self, latency: Duration) {
        let us = (latency.as_micros() as u64).min(MAX_US);
        self.recorder.record(us);
        self.sum_us += us;
        self.min_us = self.min_us.min(us);
        self.max_us = self.max_us.max(us);
    }

    fn is_empty(&self) -> bool {
        self.min_us > self.max_us
    }

    fn drain(&mut self) -> LatencyHistogram {
        if self.is_empty() {
            return LatencyHistogram::default();
        }
        let latencies = LatencyHistogram::new(self.recorder.drain(), self.sum_us, self.min_us, self.max_us);
        (self.sum_us, self.min_us, self.max_us) = (0, u64::MAX, 0);
        latencies
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::Control;

    fn outcome(ms: u64, fault: Option<Fault>) -> RequestOutcome {
        let took = Duration::from_millis(ms);
        RequestOutcome { intended: took * 2, actual: took, fault, bytes_in: 10, bytes_out: 5 }
    }

    #[test]
    fn request_is_counted_in_the_second_in_which_it_ended() {
        let start = Instant::now();
        let mut meter = Meter::new(Control::new().clock(start), 2);
        let at = |ms| start + Duration::from_millis(ms);
        meter.record(at(100), 0, outcome(10, None), 1);
        meter.record(at(2_500), 1, outcome(30, Some(Fault::Timeout)), 3);
        let seconds = meter.finish(at(2_600), 3);
        assert_eq!(seconds.iter().map(|second| second.second).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(seconds[0].steps[&0].intended.quantile_us(0.5), 20_000);
        assert_eq!((seconds[1].requests(), seconds[2].failed()), (0, 1));
        assert_eq!(seconds[2].steps[&1].faults[&Fault::Timeout], 1);
    }

    #[test]
    fn seconds_say_how_long_the_run_was_active() {
        let start = Instant::now();
        let mut meter = Meter::new(Control::new().clock(start), 1);
        let at = |ms| start + Duration::from_millis(ms);
        meter.roll(at(1_002), 0);
        meter.roll(at(2_003), 0);
        let ran: Vec<u128> =
            meter.finish(at(2_250), 0).iter().map(|second| second.generator.ran.as_millis()).collect();
        assert_eq!(ran, [1000, 1000, 250]);
    }

    #[test]
    fn failed_requests_have_a_histogram_apart() {
        let start = Instant::now();
        let mut meter = Meter::new(Control::new().clock(start), 1);
        meter.record(start, 0, outcome(10, None), 1);
        meter.record(start, 0, outcome(1, Some(Fault::Connect)), 1);
        let step = meter.finish(start, 0).remove(0).steps.remove(&0).unwrap();
        assert_eq!((step.requests(), step.failed, step.intended.count()), (2, 1, 1));
        assert_eq!(
            (step.intended.max_us(), step.actual.max_us(), step.failures.max_us()),
            (20_000, 10_000, 2_000)
        );
    }

    #[test]
    fn bucket_is_close_to_the_recorded_latency() {
        let mut recorder = LatencyRecorder::new();
        for us in [3, 999, 12_345, 777_777, 59_999_999] {
            recorder.record(Duration::from_micros(us));
            let (bound, count) = recorder.drain().buckets().next().unwrap();
            assert!(bound >= us && bound - us <= us / 1000 && count == 1, "{us} fell into {bound}");
        }
    }
}
