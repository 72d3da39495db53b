//! A histogram of latencies that can be merged, hours to days. A bucket is at most a sixteenth of its value wide.

/// Buckets per power of two.
const PARTS_LOG2: u32 = 4;
const PARTS: u64 = 1 << PARTS_LOG2;

/// Latencies in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// By bucket, up to the last one that is not empty.
    counts: Vec<u32>,
}

impl Histogram {
    pub fn add(&mut self, latency_us: u64) {
        let bucket = bucket(latency_us);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] = self.counts[bucket].saturating_add(1);
    }

    pub fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// The latency in µs that `percent` of the results did not exceed, within a sixteenth; `None` without results.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((count as f64 * percent / 100.0).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0;
        let found = self.counts.iter().position(|count| {
            below += u64::from(*count);
            below >= rank
        });
        found.map(middle)
    }

    /// For each bucket that is not empty: the number of empty buckets before it, and its count.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut skipped = 0;
        for count in &self.counts {
            if *count == 0 {
                skipped += 1;
            } else {
                write_number(&mut bytes, std::mem::take(&mut skipped));
                write_number(&mut bytes, *count);
            }
        }
        bytes
    }

    /// Reads what [`Histogram::to_bytes`] wrote. Invalid bytes are read as far as possible.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut numbers = read_numbers(bytes);
        let mut counts = Vec::new();
        while let (Some(skipped), Some(count)) = (numbers.next(), numbers.next()) {
            let at = counts.len() + skipped as usize;
            if at > bucket(u64::MAX) {
                break;
            }
            counts.resize(at, 0);
            counts.push(count);
        }
        Self { counts }
    }
}

fn bucket(value: u64) -> usize {
    if value < PARTS {
        return value as usize;
    }
    let power = value.ilog2() - PARTS_LOG2;
    (u64::from(power) * PARTS + (value >> power)) as usize
}

fn middle(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * PARTS {
        return bucket;
    }
    let power = bucket / PARTS - 1;
    let low = (bucket - power * PARTS) << power;
    low + (1 << power) / 2
}

/// Seven bits per byte, the low ones first.
fn write_number(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 128 {
        bytes.push((number % 128) as u8 | 128);
        number /= 128;
    }
    bytes.push(number as u8);
}

fn read_numbers(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let mut bytes = bytes.iter();
    std::iter::from_fn(move || {
        let (mut number, mut shift) = (0_u32, 0);
        loop {
            let byte = *bytes.next()?;
            number |= u32::from(byte & 127).checked_shl(shift)?;
            shift += 7;
            if byte < 128 {
                return Some(number);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn percentiles_are_within_a_sixteenth(
            mut values in proptest::collection::vec(0_u64..100_000_000, 1..200), percent in 1.0_f64..100.0,
        ) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.add(*value));
            values.sort_unstable();
            let rank = ((values.len() as f64 * percent / 100.0).ceil() as usize).clamp(1, values.len());
            let (exact, found) = (values[rank - 1], histogram.percentile(percent).unwrap());
            prop_assert!(found.abs_diff(exact) <= exact / 16 + 1, "{} is not about {}", found, exact);
        }

        #[test]
        fn merging_equals_adding_all_values(
            ours in proptest::collection::vec(any::<u32>(), 0..50), others in proptest::collection::vec(any::<u32>(), 0..50),
        ) {
            let of = |values: &[u32]| {
                let mut histogram = Histogram::default();
                values.iter().for_each(|value| histogram.add(u64::from(*value)));
                histogram
            };
            let mut merged = of(&ours);
            merged.merge(&of(&others));
            prop_assert_eq!(&merged, &of(&[ours, others].concat()));
            prop_assert_eq!(Histogram::from_bytes(&merged.to_bytes()), merged);
        }

        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Histogram::from_bytes(&bytes).percentile(50.0);
        }
    }
}
