//! Latencies of operations, recorded without a lock and without an allocation per call.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hob_histogram::AtomicRecorder;
use serde::Serialize;

/// A quantile is at most 1/16 too high.
const BITS: u32 = 4;
/// About 19 hours; no call takes longer than its deadline.
const MAX_US: u64 = (1 << 36) - 1;

/// A histogram of microseconds.
#[derive(Debug)]
pub(crate) struct Latency {
    recorder: AtomicRecorder<BITS>,
    sum_us: AtomicU64,
    max_us: AtomicU64,
}

/// The durations of one kind of operation, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Operations that got an answer.
    pub count: u64,
    /// The sum of their durations.
    pub sum_us: u64,
    /// The slowest.
    pub max_us: u64,
    /// The median.
    pub p50_us: u64,
    /// The 99th percentile.
    pub p99_us: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { recorder: AtomicRecorder::new(MAX_US), sum_us: AtomicU64::new(0), max_us: AtomicU64::new(0) }
    }
}

impl Latency {
    pub(crate) fn record(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.recorder.record(us);
        self.sum_us.fetch_add(us, Relaxed);
        self.max_us.fetch_max(us, Relaxed);
    }

    pub(crate) fn summary(&self) -> Summary {
        let histogram = self.recorder.read();
        let (sum_us, max_us) = (self.sum_us.load(Relaxed), self.max_us.load(Relaxed));
        let quantile =
            |quantile| histogram.quantile(quantile).map_or(0, |bucket| bucket.highest().min(max_us));
        Summary { count: histogram.count(), sum_us, max_us, p50_us: quantile(0.5), p99_us: quantile(0.99) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_come_from_the_counts() {
        let latency = Latency::default();
        assert_eq!(latency.summary(), Summary::default());
        for us in 1..=100 {
            latency.record(Duration::from_micros(us));
        }
        let summary = latency.summary();
        assert_eq!((summary.count, summary.sum_us, summary.max_us), (100, 5050, 100));
        assert!((50..=53).contains(&summary.p50_us), "{summary:?}");
        assert!((99..=100).contains(&summary.p99_us), "{summary:?}");
    }

    #[test]
    fn quantile_is_at_most_one_sixteenth_too_high() {
        for us in (0..10_000).chain([1 << 30, MAX_US]) {
            let latency = Latency::default();
            latency.record(Duration::from_micros(us));
            latency.record(Duration::from_micros(2 * us));
            let p50_us = latency.summary().p50_us;
            assert!((us..=us + us / 16).contains(&p50_us), "{us} → {p50_us}");
        }
    }

    #[test]
    fn longest_durations_are_counted() {
        let latency = Latency::default();
        latency.record(Duration::MAX);
        let summary = latency.summary();
        assert_eq!((summary.count, summary.max_us, summary.p99_us), (1, u64::MAX, MAX_US));
    }
}
