//! Histograms for values that are recorded often: all buckets are allocated in advance.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::bucket::Bucket;
use crate::histogram::Histogram;

/// Records the values of one thread.
#[derive(Debug)]
pub struct Recorder<const BITS: u32> {
    /// By the index of the bucket. A recorder is drained before a count gets this high.
    counts: Box<[u32]>,
}

/// Records the values of several threads without a lock.
#[derive(Debug)]
pub struct AtomicRecorder<const BITS: u32> {
    /// By the index of the bucket.
    counts: Box<[AtomicU64]>,
}

impl<const BITS: u32> Recorder<BITS> {
    /// Higher values than `max` are counted in the bucket of `max`.
    #[must_use]
    pub fn new(max: u64) -> Self {
        Self { counts: vec![0; buckets_up_to::<BITS>(max)].into() }
    }

    #[inline]
    pub fn record(&mut self, value: u64) {
        let last = self.counts.len() - 1;
        let count = &mut self.counts[usize::from(Bucket::<BITS>::of(value).index()).min(last)];
        *count = count.saturating_add(1);
    }

    /// Takes all counts; the recorder is empty afterwards.
    pub fn drain(&mut self) -> Histogram<BITS> {
        histogram(self.counts.iter_mut().map(|count| std::mem::take(count).into()))
    }
}

impl<const BITS: u32> AtomicRecorder<BITS> {
    /// Higher values than `max` are counted in the bucket of `max`.
    #[must_use]
    pub fn new(max: u64) -> Self {
        Self { counts: (0..buckets_up_to::<BITS>(max)).map(|_| AtomicU64::new(0)).collect() }
    }

    #[inline]
    pub fn record(&self, value: u64) {
        let last = self.counts.len() - 1;
        self.counts[usize::from(Bucket::<BITS>::of(value).index()).min(last)].fetch_add(1, Relaxed);
    }

    /// The counts so far.
    #[must_use]
    pub fn read(&self) -> Histogram<BITS> {
        histogram(self.counts.iter().map(|count| count.load(Relaxed)))
    }
}

fn buckets_up_to<const BITS: u32>(max: u64) -> usize {
    usize::from(Bucket::<BITS>::of(max).index()) + 1
}

/// A histogram of the counts of all buckets.
fn histogram<const BITS: u32>(counts: impl Iterator<Item = u64>) -> Histogram<BITS> {
    let mut histogram = Histogram::default();
    for (index, count) in (0..=Bucket::<BITS>::LAST.index()).zip(counts) {
        if count > 0 {
            histogram.add(Bucket::from_index(index).expect("the index is not above the last"), count);
        }
    }
    histogram
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn recorders_count_like_a_histogram(values in prop::collection::vec(0..2_000_000_u64, 0..100)) {
            let (mut plain, atomic) = (Recorder::<6>::new(1_000_000), AtomicRecorder::<6>::new(1_000_000));
            let mut expected = Histogram::<6>::default();
            for value in values {
                plain.record(value);
                atomic.record(value);
                expected.add(Bucket::of(value).min(Bucket::of(1_000_000)), 1);
            }
            prop_assert_eq!(&plain.drain(), &expected);
            prop_assert_eq!(plain.drain(), Histogram::default());
            prop_assert_eq!(atomic.read(), expected);
        }
    }

    #[test]
    fn all_values_can_be_recorded() {
        let mut recorder = Recorder::<10>::new(u64::MAX);
        [0, u64::MAX].into_iter().for_each(|value| recorder.record(value));
        assert_eq!(recorder.drain().buckets(), [(Bucket::of(0), 1), (Bucket::LAST, 1)]);
    }

    #[test]
    fn threads_share_an_atomic_recorder() {
        let recorder = AtomicRecorder::<4>::new(1000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|value| recorder.record(value)));
            }
        });
        let mut expected = Histogram::default();
        (0..4000).for_each(|n| expected.record(n % 1000));
        assert_eq!(recorder.read(), expected);
    }
}
