//! Tests of plans, requests, and the accuracy of measurements.

mod accuracy;
mod fuzz;
mod generator;
mod plan;
mod probe;
mod tls;
