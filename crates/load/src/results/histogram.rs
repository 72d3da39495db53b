//! A histogram of latencies, in the form in which it is stored and merged. Merging adds the counts of each bucket, so that
//! the result does not depend on which runner measured a request.

use serde::Serialize;

/// Latencies in microseconds, in buckets of three significant digits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The upper bound of each bucket and its count, in ascending order.
    buckets: Vec<(u64, u64)>,
    count: u64,
    sum_us: u64,
    min_us: u64,
    max_us: u64,
}

/// Percentiles of a latency, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, serde::Deserialize, utoipa::ToSchema)]
#[schema(as = LoadSummary)]
pub struct LatencySummary {
    pub min: f64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Histogram {
    /// `buckets` are in ascending order; the sum, minimum and maximum are exact.
    #[must_use]
    pub fn new(buckets: Vec<(u64, u64)>, sum_us: u64, min_us: u64, max_us: u64) -> Self {
        let count = buckets.iter().map(|(_, count)| count).sum();
        Self { buckets, count, sum_us, min_us, max_us }
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    #[must_use]
    pub fn buckets(&self) -> &[(u64, u64)] {
        &self.buckets
    }

    #[must_use]
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    #[must_use]
    pub fn min_us(&self) -> u64 {
        self.min_us
    }

    #[must_use]
    pub fn max_us(&self) -> u64 {
        self.max_us
    }

    #[must_use]
    pub fn mean_us(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_us as f64 / self.count as f64 }
    }

    /// The latency that this share of all latencies does not exceed; 0.99 for p99.
    #[must_use]
    pub fn quantile_us(&self, quantile: f64) -> u64 {
        let rank = ((self.count as f64 * quantile).ceil() as u64).clamp(1, self.count.max(1));
        let mut counted = 0;
        for (value, count) in &self.buckets {
            counted += count;
            if counted >= rank {
                return (*value).min(self.max_us);
            }
        }
        self.max_us
    }

    /// The number of latencies above a value.
    #[must_use]
    pub fn count_above(&self, us: u64) -> u64 {
        self.buckets.iter().filter(|(value, _)| *value > us).map(|(_, count)| count).sum()
    }

    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min_us = if self.count == 0 { other.min_us } else { self.min_us.min(other.min_us) };
        self.max_us = self.max_us.max(other.max_us);
        self.count += other.count;
        self.sum_us += other.sum_us;
        merge_buckets(&mut self.buckets, &other.buckets);
    }

    #[must_use]
    pub fn summary(&self) -> LatencySummary {
        let ms = |quantile| self.quantile_us(quantile) as f64 / 1000.0;
        LatencySummary {
            min: self.min_us as f64 / 1000.0,
            mean: self.mean_us() / 1000.0,
            p50: ms(0.5),
            p90: ms(0.9),
            p95: ms(0.95),
            p99: ms(0.99),
            p999: ms(0.999),
            max: self.max_us as f64 / 1000.0,
        }
    }
}

/// Merges in place, from the last bucket to the first. A run merges every second; a new vector each time would fragment
/// the heap.
fn merge_buckets(into: &mut Vec<(u64, u64)>, from: &[(u64, u64)]) {
    let is_new = |value: &u64| into.binary_search_by_key(value, |(known, _)| *known).is_err();
    let new = from.iter().filter(|(value, _)| is_new(value)).count();
    let mut left = into.len();
    into.resize(left + new, (0, 0));
    let mut end = into.len();
    for (value, count) in from.iter().rev() {
        while left > 0 && into[left - 1].0 > *value {
            (left, end) = (left - 1, end - 1);
            into[end] = into[left];
        }
        let mut sum = *count;
        if left > 0 && into[left - 1].0 == *value {
            left -= 1;
            sum += into[left].1;
        }
        end -= 1;
        into[end] = (*value, sum);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn histogram() -> impl Strategy<Value = Histogram> {
        prop::collection::btree_map(1..200_u64, 1..50_u64, 0..40).prop_map(|buckets| {
            let buckets: Vec<_> = buckets.into_iter().collect();
            let sum = buckets.iter().map(|(value, count)| value * count).sum();
            let (min, max) = (buckets.first().map_or(0, |b| b.0), buckets.last().map_or(0, |b| b.0));
            Histogram::new(buckets, sum, min, max)
        })
    }

    proptest! {
        #[test]
        fn merge_adds_the_counts_of_each_bucket(a in histogram(), b in histogram()) {
            let mut sums = std::collections::BTreeMap::new();
            for (value, count) in a.buckets().iter().chain(b.buckets()) {
                *sums.entry(*value).or_insert(0) += count;
            }
            let mut merged = a;
            merged.merge(&b);
            prop_assert_eq!(merged.buckets(), sums.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(merged.count(), merged.buckets().iter().map(|(_, count)| count).sum::<u64>());
        }

        #[test]
        fn merge_order_does_not_matter(a in histogram(), b in histogram(), c in histogram()) {
            let all = |parts: [&Histogram; 3]| {
                let mut all = Histogram::default();
                parts.into_iter().for_each(|part| all.merge(part));
                all
            };
            prop_assert_eq!(all([&a, &b, &c]), all([&c, &a, &b]));
        }
    }

    #[test]
    fn quantiles_match_a_sorted_list() {
        let histogram = Histogram::new((1..=1000).map(|value| (value, 1)).collect(), 500_500, 1, 1000);
        assert_eq!([0.5, 0.99, 0.999, 1.0].map(|q| histogram.quantile_us(q)), [500, 990, 999, 1000]);
        assert_eq!(Histogram::default().quantile_us(0.99), 0);
        assert_eq!(histogram.count_above(900), 100);
    }
}
