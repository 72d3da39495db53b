//! Measures the requests of one thread per second, in constant memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::results::histogram::{LatencyHistogram, Recorder};
use crate::results::second::{Fault, GeneratorSecond, Second, StepSecond};

/// Longer latencies are recorded as this value. Timeouts are always shorter.
const MAX_US: u64 = 600_000_000;

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
    start: Instant,
    second: u32,
    steps: Vec<Option<StepMeter>>,
    slip: LatencyRecorder,
    queued_arrivals: u64,
    closed: Vec<Second>,
}

#[derive(Debug)]
struct StepMeter {
    intended: LatencyRecorder,
    actual: LatencyRecorder,
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
    pub(crate) fn new(start: Instant, steps: usize) -> Self {
        let steps = (0..steps).map(|_| None).collect();
        Self { start, second: 0, steps, slip: LatencyRecorder::new(), queued_arrivals: 0, closed: Vec::new() }
    }

    /// Records a request that ended at `now`.
    pub(crate) fn record(&mut self, now: Instant, step: usize, outcome: RequestOutcome, active_users: u64) {
        self.roll(now, active_users);
        let meter = self.steps[step].get_or_insert_with(StepMeter::new);
        meter.intended.record(outcome.intended);
        meter.actual.record(outcome.actual);
        meter.bytes_in += outcome.bytes_in;
        meter.bytes_out += outcome.bytes_out;
        if let Some(fault) = outcome.fault {
            meter.failed += 1;
            *meter.faults.entry(fault).or_default() += 1;
        }
    }

    /// Records how late the generator started an iteration.
    pub(crate) fn record_slip(&mut self, slip: Duration) {
        self.slip.record(slip);
    }

    /// Counts an arrival that has to wait for a free user.
    pub(crate) fn record_queued_arrival(&mut self) {
        self.queued_arrivals += 1;
    }

    /// Closes the seconds that have ended.
    pub(crate) fn roll(&mut self, now: Instant, active_users: u64) {
        let second = u32::try_from(now.saturating_duration_since(self.start).as_secs()).unwrap_or(u32::MAX);
        while self.second < second {
            self.close(active_users);
        }
    }

    /// The seconds that were closed since the last call.
    pub(crate) fn take(&mut self) -> Vec<Second> {
        std::mem::take(&mut self.closed)
    }

    /// Closes the current second, too.
    pub(crate) fn finish(&mut self, now: Instant, active_users: u64) -> Vec<Second> {
        self.roll(now, active_users);
        self.close(active_users);
        self.take()
    }

    fn close(&mut self, active_users: u64) {
        let mut second = Second::new(self.second);
        second.generator = GeneratorSecond {
            active_users,
            slip: self.slip.drain(),
            queued_arrivals: std::mem::take(&mut self.queued_arrivals),
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
            failed: 0,
            bytes_in: 0,
            bytes_out: 0,
            faults: BTreeMap::new(),
        }
    }

    fn drain(&mut self) -> Option<StepSecond> {
        if self.intended.is_empty() {
            return None;
        }
        Some(StepSecond {
            intended: self.intended.drain(),
            actual: self.actual.drain(),
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

    fn outcome(ms: u64, fault: Option<Fault>) -> RequestOutcome {
        let took = Duration::from_millis(ms);
        RequestOutcome { intended: took * 2, actual: took, fault, bytes_in: 10, bytes_out: 5 }
    }

    #[test]
    fn request_is_counted_in_the_second_in_which_it_ended() {
        let start = Instant::now();
        let mut meter = Meter::new(start, 2);
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
    fn bucket_is_close_to_the_recorded_latency() {
        let mut recorder = LatencyRecorder::new();
        for us in [3, 999, 12_345, 777_777, 59_999_999] {
            recorder.record(Duration::from_micros(us));
            let (bound, count) = recorder.drain().buckets().next().unwrap();
            assert!(bound >= us && bound - us <= us / 1000 && count == 1, "{us} fell into {bound}");
        }
    }
}
