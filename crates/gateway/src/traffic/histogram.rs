//! Log-linear histograms of microseconds with 64 buckets for each power of two. A value is accurate to 1 %, and
//! histograms of different instances and minutes can be merged.

use std::collections::BTreeMap;
use std::time::Duration;

const LINEAR: u32 = 64;

/// A bucket's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(pub(crate) u16);

impl Bucket {
    #[must_use]
    pub fn of(us: u32) -> Self {
        if us < LINEAR {
            return Self(us as u16);
        }
        let power = us.ilog2() - LINEAR.ilog2();
        // At most 64 + 25 × 64 + 63.
        Self((power * LINEAR + (us >> power)) as u16)
    }

    /// The range of values, without its end.
    #[must_use]
    pub fn range_us(self) -> (u64, u64) {
        let bucket = u64::from(self.0);
        let linear = u64::from(LINEAR);
        if bucket < linear {
            return (bucket, bucket + 1);
        }
        let power = bucket / linear - 1;
        let lower = (linear + bucket % linear) << power;
        (lower, lower + (1 << power))
    }

    /// The value that represents the bucket.
    #[must_use]
    pub fn middle_us(self) -> u64 {
        let (lower, upper) = self.range_us();
        (lower + upper - 1).div_ceil(2).max(lower)
    }
}

/// Counts by bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: BTreeMap<Bucket, u64>,
    total: u64,
}

impl Histogram {
    pub fn add(&mut self, bucket: Bucket, count: u64) {
        *self.counts.entry(bucket).or_default() += count;
        self.total += count;
    }

    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in &other.counts {
            self.add(*bucket, *count);
        }
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The value that `percent` of all values do not exceed; `None` if there are no values.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        let rank = (self.total as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in &self.counts {
            seen += count;
            if seen >= rank {
                return Some(Duration::from_micros(bucket.middle_us()));
            }
        }
        None
    }

    /// The non-empty buckets, the fastest first.
    pub fn buckets(&self) -> impl Iterator<Item = (Bucket, u64)> {
        self.counts.iter().map(|(bucket, count)| (*bucket, *count))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_have_no_gaps() {
        let mut expected = 0;
        for number in 0..=Bucket::of(u32::MAX).0 {
            let (lower, upper_of_next) = Bucket(number).range_us();
            assert_eq!(lower, expected, "bucket {number}");
            expected = upper_of_next;
        }
        assert_eq!(expected, 1 << 32);
    }

    proptest! {
        #[test]
        fn values_are_accurate_to_one_percent(us: u32) {
            let bucket = Bucket::of(us);
            let (lower, upper) = bucket.range_us();
            prop_assert!((lower..upper).contains(&u64::from(us)));
            prop_assert!(bucket.middle_us().abs_diff(u64::from(us)) as f64 <= f64::from(us) * 0.01);
        }

        /// Percentiles of merged histograms are those of all values together.
        #[test]
        fn percentiles_of_merged_histograms_are_accurate(
            parts in prop::collection::vec(prop::collection::vec(1_u32..10_000_000, 1..80), 1..6), percent in 0.0_f64..100.0,
        ) {
            let mut merged = Histogram::default();
            for part in &parts {
                let mut histogram = Histogram::default();
                part.iter().for_each(|us| histogram.add(Bucket::of(*us), 1));
                merged.merge(&histogram);
            }
            let mut all: Vec<u32> = parts.concat();
            all.sort_unstable();
            let rank = ((all.len() as f64 * percent / 100.0).ceil() as usize).max(1);
            let (exact, found) = (f64::from(all[rank - 1]), merged.percentile(percent).unwrap().as_micros() as f64);
            prop_assert!((found - exact).abs() <= exact * 0.01, "{found} for {exact}");
        }
    }

    #[test]
    fn empty_histogram_has_no_percentile() {
        assert_eq!(Histogram::default().percentile(99.0), None);
    }
}
