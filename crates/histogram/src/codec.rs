//! The binary format of a histogram. For each bucket that is not empty, in ascending order, it has two varints: the number
//! of empty buckets since the one before, and the count. The precision is not stored.

use crate::bucket::Bucket;
use crate::histogram::Histogram;
use crate::varint::{self, DecodeError};

impl<const BITS: u32> Histogram<BITS> {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut next = 0;
        for (bucket, count) in self.buckets() {
            let index = u64::from(bucket.index());
            varint::write(&mut out, index - next);
            varint::write(&mut out, *count);
            next = index + 1;
        }
        out
    }

    /// Reads what [`Histogram::encode`] wrote for a histogram with the same `BITS`.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut histogram = Self::default();
        let mut next = 0_u64;
        while !bytes.is_empty() {
            let (skipped, count) = (varint::read(&mut bytes)?, varint::read(&mut bytes)?);
            let index = next.checked_add(skipped).and_then(|index| u16::try_from(index).ok());
            let bucket = index.and_then(Bucket::from_index).ok_or(DecodeError)?;
            if count == 0 || histogram.count().checked_add(count).is_none() {
                return Err(DecodeError);
            }
            histogram.add(bucket, count);
            next = u64::from(bucket.index()) + 1;
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_of_a_histogram() {
        let mut histogram = Histogram::<4>::default();
        [0, 3, 4].into_iter().for_each(|value| histogram.record(value));
        histogram.add(Bucket::of(20_007), 300);
        assert_eq!(histogram.encode(), [0, 1, 2, 1, 0, 1, 0xae, 0x01, 0xac, 0x02]);
        assert_eq!(Histogram::<4>::default().encode(), []);
    }

    #[test]
    fn bytes_that_no_histogram_has_are_rejected() {
        let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        let after_the_last_bucket = [&[0xcf, 0x07, 1, 0][..], &[1]].concat();
        let too_many_values = [&[0][..], &most, &[0, 1]].concat();
        for bytes in [&[0][..], &[0, 0], &[0xd0, 0x07, 1], &after_the_last_bucket, &too_many_values] {
            assert_eq!(Histogram::<4>::decode(bytes), Err(DecodeError), "{bytes:?}");
        }
        assert_eq!(
            Histogram::<4>::decode(&after_the_last_bucket[..3]).unwrap().buckets(),
            [(Bucket::LAST, 1)]
        );
    }

    proptest! {
        #[test]
        fn histograms_round_trip(counts in prop::collection::vec((0..64_u32, any::<u64>(), any::<u32>()), 0..60)) {
            let mut histogram = Histogram::<10>::default();
            for (power, value, count) in counts {
                histogram.add(Bucket::of(value >> power), count.into());
            }
            prop_assert_eq!(Histogram::decode(&histogram.encode()), Ok(histogram));
        }

        /// What can be decoded has at most one bucket for two bytes, and is a valid histogram.
        #[test]
        fn any_bytes_are_decoded_or_rejected(bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0..4_u8], 0..64)) {
            if let Ok(histogram) = Histogram::<4>::decode(&bytes) {
                prop_assert!(histogram.buckets().len() <= bytes.len() / 2);
                prop_assert!(histogram.buckets().is_sorted_by_key(|(bucket, _)| *bucket));
                prop_assert_eq!(histogram.count(), histogram.buckets().iter().map(|(_, count)| count).sum::<u64>());
                prop_assert_eq!(Histogram::decode(&histogram.encode()), Ok(histogram));
            }
        }
    }
}
