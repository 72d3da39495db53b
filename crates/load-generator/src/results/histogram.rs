//! Latencies, in the form in which they are stored and merged. Merging adds the counts of each bucket, so that the result
//! does not depend on which runner measured a request.

use serde::Serialize;

/// Buckets of three significant digits.
const BITS: u32 = 10;

pub type Bucket = hob_histogram::Bucket<BITS>;
pub type Histogram = hob_histogram::Histogram<BITS>;
pub(crate) type Recorder = hob_histogram::Recorder<BITS>;

/// Latencies in microseconds: a histogram with three significant digits, and the exact sum, minimum and maximum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyHistogram {
    histogram: Histogram,
    sum_us: u64,
    min_us: u64,
    max_us: u64,
}

/// Percentiles of a latency, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LoadSummary))]
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

impl LatencyHistogram {
    /// The sum, minimum and maximum are exact.
    #[must_use]
    pub fn new(histogram: Histogram, sum_us: u64, min_us: u64, max_us: u64) -> Self {
        Self { histogram, sum_us, min_us, max_us }
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.count()
    }

    /// The upper bound of each bucket that is not empty and its count, in ascending order.
    pub fn buckets(&self) -> impl ExactSizeIterator<Item = (u64, u64)> {
        self.histogram.buckets().iter().map(|(bucket, count)| (bucket.highest(), *count))
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
        if self.count() == 0 { 0.0 } else { self.sum_us as f64 / self.count() as f64 }
    }

    /// The latency that this share of all latencies does not exceed; 0.99 for p99.
    #[must_use]
    pub fn quantile_us(&self, quantile: f64) -> u64 {
        self.histogram.quantile(quantile).map_or(0, |bucket| bucket.highest().min(self.max_us))
    }

    /// The number of latencies above a value.
    #[must_use]
    pub fn count_above(&self, us: u64) -> u64 {
        self.buckets().filter(|(value, _)| *value > us).map(|(_, count)| count).sum()
    }

    pub fn merge(&mut self, other: &Self) {
        if other.count() == 0 {
            return;
        }
        self.min_us = if self.count() == 0 { other.min_us } else { self.min_us.min(other.min_us) };
        self.max_us = self.max_us.max(other.max_us);
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        self.histogram.merge(&other.histogram);
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

/// Each latency, and how often it was measured.
impl FromIterator<(u64, u64)> for LatencyHistogram {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(latencies: I) -> Self {
        let mut all = Self::default();
        for (us, count) in latencies {
            let mut histogram = Histogram::default();
            histogram.add(Bucket::of(us), count);
            all.merge(&Self::new(histogram, us * count, us, us));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn latencies() -> impl Strategy<Value = LatencyHistogram> {
        prop::collection::vec((0..10_000_000_u64, 1..50_u64), 0..40).prop_map(LatencyHistogram::from_iter)
    }

    proptest! {
        #[test]
        fn merge_order_does_not_matter(a in latencies(), b in latencies(), c in latencies()) {
            let all = |parts: [&LatencyHistogram; 3]| {
                let mut all = LatencyHistogram::default();
                parts.into_iter().for_each(|part| all.merge(part));
                all
            };
            prop_assert_eq!(all([&a, &b, &c]), all([&c, &a, &b]));
        }

        #[test]
        fn quantiles_have_three_significant_digits(
            mut us in prop::collection::vec(0..600_000_000_u64, 1..200), per_mille in 0..=1000_usize,
        ) {
            let found = us.iter().map(|us| (*us, 1)).collect::<LatencyHistogram>().quantile_us(per_mille as f64 / 1000.0);
            us.sort_unstable();
            let exact = us[(us.len() * per_mille).div_ceil(1000).max(1) - 1];
            prop_assert!((exact..=exact + exact / 1000).contains(&found), "{} for {}", found, exact);
        }
    }

    #[test]
    fn quantiles_match_a_sorted_list() {
        let latencies: LatencyHistogram = (1..=1000).map(|us| (us, 1)).collect();
        assert_eq!([0.5, 0.99, 0.999, 1.0].map(|q| latencies.quantile_us(q)), [500, 990, 999, 1000]);
        assert_eq!((latencies.sum_us(), latencies.min_us(), latencies.max_us()), (500_500, 1, 1000));
        assert_eq!(LatencyHistogram::default().quantile_us(0.99), 0);
        assert_eq!(latencies.count_above(900), 100);
    }
}
