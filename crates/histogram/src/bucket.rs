//! The buckets: which values they hold, and their numbers, which are part of stored formats.

/// A bucket of a histogram with `2^BITS` buckets for each power of two. `BITS` is at most 10.
///
/// Values below `2^BITS` have a bucket each, with the value as its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket<const BITS: u32>(u16);

impl<const BITS: u32> Bucket<BITS> {
    const PER_POWER: u64 = {
        assert!(BITS <= 10, "indexes have 16 bits");
        1 << BITS
    };

    /// The bucket of the highest value.
    pub const LAST: Self = Self::of(u64::MAX);

    /// The bucket of a value.
    #[inline]
    #[must_use]
    pub const fn of(value: u64) -> Self {
        // 0 for buckets that contain a single value.
        let power = (value | Self::PER_POWER).ilog2() - BITS;
        Self(((power << BITS) as u64 + (value >> power)) as u16)
    }

    /// The bucket with this index; `None` if there is none.
    #[must_use]
    pub fn from_index(index: u16) -> Option<Self> {
        (index <= Self::LAST.0).then_some(Self(index))
    }

    /// The number of buckets below this one.
    #[inline]
    #[must_use]
    pub const fn index(self) -> u16 {
        self.0
    }

    /// The lowest value of the bucket.
    #[must_use]
    pub const fn lowest(self) -> u64 {
        let power = self.power();
        (self.0 as u64 - ((power as u64) << BITS)) << power
    }

    /// The highest value of the bucket: none of its values exceeds it.
    #[must_use]
    pub const fn highest(self) -> u64 {
        self.lowest() + ((1 << self.power()) - 1)
    }

    /// The value that is closest to all values of the bucket.
    #[must_use]
    pub const fn middle(self) -> u64 {
        self.lowest() + (1 << self.power()) / 2
    }

    /// The bucket is `2^power` wide.
    const fn power(self) -> u32 {
        ((self.0 as u32) >> BITS).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram as HdrHistogram;
    use proptest::prelude::*;

    use super::*;

    fn buckets_have_no_gaps<const BITS: u32>() {
        let mut next = Some(0);
        for index in 0..=u16::MAX {
            let Some(bucket) = Bucket::<BITS>::from_index(index) else { continue };
            assert_eq!(Some(bucket.lowest()), next, "bucket {index}");
            assert_eq!([bucket.lowest(), bucket.middle(), bucket.highest()].map(Bucket::of), [bucket; 3]);
            assert_eq!(bucket.index(), index);
            next = bucket.highest().checked_add(1);
        }
        assert_eq!(next, None, "the last bucket ends with the highest value");
    }

    #[test]
    fn buckets_have_no_gaps_at_any_precision() {
        buckets_have_no_gaps::<0>();
        buckets_have_no_gaps::<4>();
        buckets_have_no_gaps::<6>();
        buckets_have_no_gaps::<10>();
    }

    /// Indexes are stored, so they never change.
    #[test]
    fn indexes_of_values() {
        let of = |values: [u64; 6], index: fn(u64) -> u16| values.map(index);
        assert_eq!(
            of([0, 15, 16, 33, 20_007, u64::MAX], |us| Bucket::<4>::of(us).index()),
            [0, 15, 16, 32, 179, 975]
        );
        assert_eq!(
            of([0, 63, 64, 129, 20_007, u64::MAX], |us| Bucket::<6>::of(us).index()),
            [0, 63, 64, 128, 590, 3775]
        );
    }

    proptest! {
        #[test]
        fn bucket_is_narrow(power in 0..64_u32, low in any::<u64>()) {
            let value = (1 << power) | (low & ((1 << power) - 1));
            let bucket = Bucket::<6>::of(value);
            prop_assert!((bucket.lowest()..=bucket.highest()).contains(&value));
            prop_assert!(bucket.highest() - bucket.lowest() <= value / 64);
            prop_assert!(bucket.middle().abs_diff(value) <= value / 128 + 1);
        }

        /// Stored histograms with `BITS = 10` hold bounds that an HdrHistogram with three significant digits computed.
        #[test]
        fn ten_bits_are_three_digits_of_an_hdr_histogram(power in 0..63_u32, low in any::<u64>()) {
            let value = (1 << power) | (low & ((1 << power) - 1));
            let hdr = HdrHistogram::<u64>::new_with_bounds(1, u64::MAX / 2, 3).unwrap();
            prop_assert_eq!(Bucket::<10>::of(value).lowest(), hdr.lowest_equivalent(value));
            prop_assert_eq!(Bucket::<10>::of(value).highest(), hdr.highest_equivalent(value));
        }
    }
}
