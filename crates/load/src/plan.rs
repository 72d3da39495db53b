//! The saved plans. [`hob_load_generator`] reads and runs them.

pub(crate) mod cache;
pub(crate) mod catalog;

pub use hob_load_generator::plan::{Format, LoadModel, Mistake, Plan, PlanFiles, PlanSource, Position, Step};
