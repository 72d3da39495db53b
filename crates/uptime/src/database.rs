//! Every query of this service, a file for each table or group of tables.
//!
//! A function that is part of a larger change takes the caller's transaction; the domain decides what belongs together.

pub mod channels;
pub(crate) mod deliveries;
pub mod incidents;
pub mod maintenance;
pub mod monitors;
pub(crate) mod past;
pub mod results;
pub mod status_pages;
pub(crate) mod subscribers;
pub(crate) mod summaries;
pub(crate) mod updates;
