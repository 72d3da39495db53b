//! Counts by bucket.

use crate::bucket::Bucket;

/// The rounding error of a product is below this share: in floating point, 0.07 × 100 is slightly more than 7, and must
/// not become rank 8.
const ROUNDING: f64 = 1e-12;

/// Counts of values by [`Bucket`]. Counts saturate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram<const BITS: u32> {
    /// The buckets that are not empty, in ascending order.
    buckets: Vec<(Bucket<BITS>, u64)>,
    count: u64,
}

impl<const BITS: u32> Histogram<BITS> {
    /// Counts a value.
    pub fn record(&mut self, value: u64) {
        self.add(Bucket::of(value), 1);
    }

    /// Counts values of one bucket.
    pub fn add(&mut self, bucket: Bucket<BITS>, count: u64) {
        if count == 0 {
            return;
        }
        self.count = self.count.saturating_add(count);
        // Stored buckets come in ascending order.
        if self.buckets.last().is_none_or(|(last, _)| *last < bucket) {
            self.buckets.push((bucket, count));
            return;
        }
        match self.buckets.binary_search_by_key(&bucket, |(known, _)| *known) {
            Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(count),
            Err(at) => self.buckets.insert(at, (bucket, count)),
        }
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        merge_buckets(&mut self.buckets, &other.buckets);
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The buckets that are not empty, in ascending order, each with its count.
    #[must_use]
    pub fn buckets(&self) -> &[(Bucket<BITS>, u64)] {
        &self.buckets
    }

    /// The bucket that contains a quantile: 0.99 for p99. `None` if the histogram is empty.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<Bucket<BITS>> {
        let rank = (self.count as f64 * quantile * (1.0 - ROUNDING)).ceil() as u64;
        let rank = rank.clamp(1, self.count.max(1));
        let mut counted = 0_u64;
        let found = self.buckets.iter().find(|(_, count)| {
            counted = counted.saturating_add(*count);
            counted >= rank
        });
        found.map(|(bucket, _)| *bucket)
    }
}

/// Merges in place, from the last bucket to the first: histograms are merged often, and a new vector each time would
/// fragment the heap.
fn merge_buckets<const BITS: u32>(into: &mut Vec<(Bucket<BITS>, u64)>, from: &[(Bucket<BITS>, u64)]) {
    let is_new = |bucket: &Bucket<BITS>| into.binary_search_by_key(bucket, |(known, _)| *known).is_err();
    let new = from.iter().filter(|(bucket, _)| is_new(bucket)).count();
    let mut left = into.len();
    into.resize(left + new, (Bucket::of(0), 0));
    let mut end = into.len();
    for (bucket, count) in from.iter().rev() {
        while left > 0 && into[left - 1].0 > *bucket {
            (left, end) = (left - 1, end - 1);
            into[end] = into[left];
        }
        let mut sum = *count;
        if left > 0 && into[left - 1].0 == *bucket {
            left -= 1;
            sum = sum.saturating_add(into[left].1);
        }
        end -= 1;
        into[end] = (*bucket, sum);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hdrhistogram::Histogram as HdrHistogram;
    use proptest::prelude::*;

    use super::*;

    /// Values of all magnitudes.
    fn values() -> impl Strategy<Value = Vec<u64>> {
        let value = (0..64_u32, any::<u64>()).prop_map(|(power, value)| value >> power);
        prop::collection::vec(value, 0..60)
    }

    fn of(values: &[u64]) -> Histogram<4> {
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.record(*value));
        histogram
    }

    fn merged(parts: &[&Histogram<4>]) -> Histogram<4> {
        let mut all = Histogram::default();
        parts.iter().for_each(|part| all.merge(part));
        all
    }

    proptest! {
        #[test]
        fn record_counts_each_value_in_its_bucket(values in values()) {
            let mut counts = BTreeMap::new();
            values.iter().for_each(|value| *counts.entry(Bucket::<4>::of(*value)).or_insert(0) += 1);
            let histogram = of(&values);
            prop_assert_eq!(histogram.buckets(), counts.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(histogram.count(), values.len() as u64);
        }

        #[test]
        fn merging_equals_recording_all_values(a in values(), b in values()) {
            prop_assert_eq!(merged(&[&of(&a), &of(&b)]), of(&[a, b].concat()));
        }

        #[test]
        fn order_of_merges_does_not_matter(a in values(), b in values(), c in values()) {
            let (a, b, c) = (of(&a), of(&b), of(&c));
            prop_assert_eq!(merged(&[&a, &b]), merged(&[&b, &a]));
            prop_assert_eq!(merged(&[&merged(&[&a, &b]), &c]), merged(&[&a, &merged(&[&b, &c])]));
        }

        #[test]
        fn quantile_is_the_bucket_of_the_exact_value(mut values in values(), per_mille in 0..=1000_usize) {
            let found = of(&values).quantile(per_mille as f64 / 1000.0);
            values.sort_unstable();
            let rank = (values.len() * per_mille).div_ceil(1000).max(1);
            prop_assert_eq!(found, values.get(rank - 1).map(|exact| Bucket::of(*exact)));
        }

        #[test]
        fn quantiles_are_those_of_an_hdr_histogram(
            values in prop::collection::vec(1..600_000_000_u64, 1..200), quantile in 0.0..1.0,
        ) {
            let mut ours = Histogram::<10>::default();
            let mut hdr = HdrHistogram::<u64>::new_with_bounds(1, 600_000_000, 3).unwrap();
            for value in values {
                ours.record(value);
                hdr.record(value).unwrap();
            }
            let found = ours.quantile(quantile).unwrap();
            prop_assert_eq!(found.highest(), hdr.highest_equivalent(hdr.value_at_quantile(quantile)));
        }
    }

    #[test]
    fn quantile_is_not_a_rank_too_high() {
        let mut histogram = Histogram::<10>::default();
        (1..=100).for_each(|value| histogram.record(value));
        assert_eq!([0.07, 0.99, 99.9 / 100.0].map(|q| histogram.quantile(q).unwrap().lowest()), [7, 99, 100]);
        assert_eq!(Histogram::<4>::default().quantile(0.99), None);
        assert_eq!([0.0, 1.0, f64::NAN].map(|q| of(&[3, 5]).quantile(q).unwrap().lowest()), [3, 5, 3]);
    }

    #[test]
    fn counts_saturate() {
        let mut most = Histogram::<4>::default();
        most.add(Bucket::of(7), u64::MAX);
        most.add(Bucket::of(9), 0);
        most.merge(&most.clone());
        most.record(8);
        assert_eq!(most.buckets(), [(Bucket::of(7), u64::MAX), (Bucket::of(8), 1)]);
        assert_eq!(most.quantile(1.0), Some(Bucket::of(7)));
    }
}
