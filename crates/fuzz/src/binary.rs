//! What Hob wrote itself and reads back, from places that other programs can write to: histograms and cursors.

use hob_database::PageRequest;
use hob_histogram::Histogram;
use hob_load::{GeneratorSecond, StepSecond};

/// Encoded measurements are rejected, or they are the same after being encoded and decoded again.
pub fn histogram(data: &[u8]) {
    if let Ok(histogram) = Histogram::<5>::decode(data) {
        assert_eq!(Histogram::decode(&histogram.encode()), Ok(histogram.clone()));
        assert_eq!(histogram.quantile(0.99).is_some(), histogram.count() > 0);
    }
    if let Ok(second) = GeneratorSecond::decode(data) {
        assert_eq!(GeneratorSecond::decode(&second.encode()), Ok(second));
    }
    if let Ok(step) = StepSecond::decode(data) {
        assert_eq!(StepSecond::decode(&step.encode()), Ok(step));
    }
}

/// The cursor of a page is parsed or rejected.
pub fn cursor(data: &[u8]) {
    let Some(text) = crate::text(data) else { return };
    let _ = PageRequest::parse(Some(text), Some(10));
}
