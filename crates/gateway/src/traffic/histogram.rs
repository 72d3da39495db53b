//! Histograms of response times in microseconds. A value is accurate to 1 %.
//!
//! The indexes of the buckets are stored: `schemas/gateway.toml` documents them.

use std::time::Duration;

/// Each power of two has 64 buckets.
const BITS: u32 = 6;

pub type Bucket = hob_histogram::Bucket<BITS>;
pub type Histogram = hob_histogram::Histogram<BITS>;

/// The response time that `percent` of all responses do not exceed; `None` if there are none.
pub(crate) fn percentile(histogram: &Histogram, percent: f64) -> Option<Duration> {
    histogram.quantile(percent / 100.0).map(|bucket| Duration::from_micros(bucket.middle()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Earlier versions have stored these indexes.
    #[test]
    fn stored_buckets_have_the_same_values() {
        let stored = [
            (0, 0, 0..=0, 0),
            (63, 63, 63..=63, 63),
            (64, 64, 64..=64, 64),
            (127, 127, 127..=127, 127),
            (128, 128, 128..=129, 129),
            (129, 128, 128..=129, 129),
            (1_000, 317, 1_000..=1_007, 1_004),
            (12_345, 544, 12_288..=12_415, 12_352),
            (777_777, 926, 770_048..=778_239, 774_144),
            (59_999_999, 1_330, 59_768_832..=60_293_119, 60_030_976),
            (u64::from(u32::MAX), 1_727, 4_261_412_864..=4_294_967_295, 4_278_190_080),
        ];
        for (us, index, range, middle) in stored {
            let bucket = Bucket::from_index(index).unwrap();
            assert_eq!(Bucket::of(us), bucket, "{us}");
            assert_eq!((bucket.lowest()..=bucket.highest(), bucket.middle()), (range, middle), "{us}");
        }
    }

    proptest! {
        #[test]
        fn percentiles_are_accurate_to_one_percent(
            mut all in prop::collection::vec(1_u64..10_000_000, 1..200), percent in 0.0_f64..100.0,
        ) {
            let mut histogram = Histogram::default();
            all.iter().for_each(|us| histogram.record(*us));
            all.sort_unstable();
            let rank = ((all.len() as f64 * percent / 100.0).ceil() as usize).max(1);
            let (exact, found) = (all[rank - 1] as f64, percentile(&histogram, percent).unwrap().as_micros() as f64);
            prop_assert!((found - exact).abs() <= exact * 0.01, "{found} for {exact}");
        }
    }

    #[test]
    fn empty_histogram_has_no_percentile() {
        assert_eq!(percentile(&Histogram::default(), 99.0), None);
    }
}
