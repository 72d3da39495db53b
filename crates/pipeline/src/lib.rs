//! Pipelines: quota-bound, resumable fetching with many workers.

mod error;
pub mod keys;
pub mod quota;

pub use error::{Error, Result};

/// The tables of pipelines.
pub const MIGRATIONS: hob_records::Migrations = hob_records::migrations!("pipeline": "0001_pipeline");
