//! Contract tests of pipelines (P1–P12) on every store and both databases, and tests with failing servers, sinks and
//! APIs.

mod api;
mod faults;
mod foreign;
mod fuzz;
mod migrations;
mod outages;
mod outputs;
mod quota;
mod quota_model;
mod runs;
mod secrets;
mod sharing;
mod simulation;
mod sinks;
mod support;
