//! Latencies counted in a fixed array of atomics: no lock and no allocation per call.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;

/// Steps within each doubling; a quantile is at most 1/16 too high.
const STEPS: u64 = 16;
/// Up to 2³⁶ µs, about 19 hours; no call takes longer than its deadline.
const BUCKETS: usize = 33 * STEPS as usize;

/// A histogram of microseconds, linear up to 16 and then 16 steps per doubling.
#[derive(Debug)]
pub(crate) struct Latency {
    buckets: Box<[AtomicU64; BUCKETS]>,
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
        let buckets = Box::new([const { AtomicU64::new(0) }; BUCKETS]);
        Self { buckets, sum_us: AtomicU64::new(0), max_us: AtomicU64::new(0) }
    }
}

impl Latency {
    pub(crate) fn record(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket(us)].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us, Relaxed);
        self.max_us.fetch_max(us, Relaxed);
    }

    pub(crate) fn summary(&self) -> Summary {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
        let count = counts.iter().sum();
        let max_us = self.max_us.load(Relaxed);
        let quantile = |per_cent: u64| quantile(&counts, count, per_cent).min(max_us);
        let sum_us = self.sum_us.load(Relaxed);
        Summary { count, sum_us, max_us, p50_us: quantile(50), p99_us: quantile(99) }
    }
}

fn quantile(counts: &[u64], count: u64, per_cent: u64) -> u64 {
    let rank = (count * per_cent).div_ceil(100);
    let mut seen = 0;
    for (index, in_bucket) in counts.iter().enumerate() {
        seen += in_bucket;
        if seen >= rank {
            return highest(index);
        }
    }
    0
}

fn bucket(us: u64) -> usize {
    if us < STEPS {
        return us as usize;
    }
    let doublings = us.ilog2() - STEPS.ilog2();
    let step = (us >> doublings) - STEPS;
    ((u64::from(doublings) + 1) * STEPS + step).min(BUCKETS as u64 - 1) as usize
}

/// The highest value that falls into a bucket.
fn highest(index: usize) -> u64 {
    let index = index as u64;
    if index < STEPS {
        return index;
    }
    let doublings = index / STEPS - 1;
    ((index % STEPS + STEPS + 1) << doublings) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_error_is_at_most_one_sixteenth() {
        for us in (0..100_000).chain([1 << 30, (1 << 36) - 1]) {
            let top = highest(bucket(us));
            assert!(top >= us && top <= us + us / STEPS, "{us} → {top}");
            assert!(bucket(us) == 0 || highest(bucket(us) - 1) < us, "{us}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

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
}
