//! Measurements: histograms, seconds and totals, and the form in which they are stored.

mod codec;
pub(crate) mod histogram;
pub(crate) mod second;
pub(crate) mod totals;
