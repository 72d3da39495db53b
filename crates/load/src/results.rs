//! The results of a run: the report, its charts, and comparisons.

pub(crate) mod charts;
pub(crate) mod comparison;
pub(crate) mod report;
