//! Latencies, counted in buckets: what an HdrHistogram recorded, in the form in which it is sent, stored and
//! merged. Merging adds counts bucket by bucket, so that it does not matter who measured what.

use serde::Serialize;

use crate::results::codec::{BadBytes, Reader, put};

/// How often which latency was seen, in microseconds, to three digits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// The largest latency of each bucket and how often it was seen, smallest first.
    buckets: Vec<(u64, u64)>,
    count: u64,
    sum_us: u64,
    min_us: u64,
    max_us: u64,
}

/// The numbers that people ask for, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, serde::Deserialize, utoipa::ToSchema)]
#[schema(as = LoadSummary)]
pub struct Summary {
    pub min: f64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Spread {
    /// From buckets in order, and what was seen exactly.
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

    /// The latency that a part of all latencies does not exceed: 0.99 for p99.
    #[must_use]
    pub fn quantile_us(&self, quantile: f64) -> u64 {
        let rank = ((self.count as f64 * quantile).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (value, count) in &self.buckets {
            seen += count;
            if seen >= rank {
                return (*value).min(self.max_us);
            }
        }
        self.max_us
    }

    /// How many were above a latency.
    #[must_use]
    pub fn above(&self, us: u64) -> u64 {
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
        merge(&mut self.buckets, &other.buckets);
    }

    #[must_use]
    pub fn summary(&self) -> Summary {
        let ms = |quantile| self.quantile_us(quantile) as f64 / 1000.0;
        Summary {
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

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for number in [self.buckets.len() as u64, self.sum_us, self.min_us, self.max_us] {
            put(out, number);
        }
        let mut last = 0;
        for (value, count) in &self.buckets {
            put(out, value - last);
            put(out, *count);
            last = *value;
        }
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let [len, sum_us, min_us, max_us] = [from.number()?, from.number()?, from.number()?, from.number()?];
        let mut buckets = Vec::new();
        let mut last = 0_u64;
        for _ in 0..len {
            last = last.checked_add(from.number()?).ok_or(BadBytes)?;
            buckets.push((last, from.number()?));
        }
        Ok(Self::new(buckets, sum_us, min_us, max_us))
    }
}

/// Adds buckets to others where they are, from the last on: this happens every second of a run, and must not leave
/// holes in memory.
fn merge(into: &mut Vec<(u64, u64)>, from: &[(u64, u64)]) {
    let is_new = |value: &u64| into.binary_search_by_key(value, |(known, _)| *known).is_err();
    let new = from.iter().filter(|(value, _)| is_new(value)).count();
    let mut left = into.len();
    into.resize(left + new, (0, 0));
    let mut place = into.len();
    for (value, count) in from.iter().rev() {
        while left > 0 && into[left - 1].0 > *value {
            (left, place) = (left - 1, place - 1);
            into[place] = into[left];
        }
        let mut all = *count;
        if left > 0 && into[left - 1].0 == *value {
            left -= 1;
            all += into[left].1;
        }
        place -= 1;
        into[place] = (*value, all);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spread() -> impl Strategy<Value = Spread> {
        prop::collection::btree_map(1..200_u64, 1..50_u64, 0..40).prop_map(|buckets| {
            let buckets: Vec<_> = buckets.into_iter().collect();
            let sum = buckets.iter().map(|(value, count)| value * count).sum();
            let (min, max) = (buckets.first().map_or(0, |b| b.0), buckets.last().map_or(0, |b| b.0));
            Spread::new(buckets, sum, min, max)
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(spread in spread()) {
            let mut out = Vec::new();
            spread.write(&mut out);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(Spread::read(&mut reader).unwrap(), spread);
            prop_assert!(reader.is_done());
        }

        #[test]
        fn merging_adds_bucket_by_bucket(a in spread(), b in spread()) {
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
        fn the_order_of_merging_does_not_matter(a in spread(), b in spread(), c in spread()) {
            let all = |parts: [&Spread; 3]| {
                let mut all = Spread::default();
                parts.into_iter().for_each(|part| all.merge(part));
                all
            };
            prop_assert_eq!(all([&a, &b, &c]), all([&c, &a, &b]));
        }
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_list() {
        let spread = Spread::new((1..=1000).map(|value| (value, 1)).collect(), 500_500, 1, 1000);
        assert_eq!([0.5, 0.99, 0.999, 1.0].map(|q| spread.quantile_us(q)), [500, 990, 999, 1000]);
        assert_eq!(Spread::default().quantile_us(0.99), 0);
        assert_eq!(spread.above(900), 100);
    }
}
