//! The results of a run: histograms, seconds, totals and the report.

pub(crate) mod charts;
pub(crate) mod codec;
pub(crate) mod comparison;
pub(crate) mod histogram;
pub(crate) mod report;
pub(crate) mod second;
pub(crate) mod totals;
