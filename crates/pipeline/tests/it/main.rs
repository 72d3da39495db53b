//! The contract of pipelines (P1–P12) on every store and both databases, and what happens when servers, sinks and
//! APIs misbehave.

mod api;
mod faults;
mod fuzz;
mod migrations;
mod outages;
mod outputs;
mod quota;
mod quota_model;
mod runs;
mod secrets;
mod simulation;
mod sinks;
mod support;
