//! Tests of contracts, accuracy, the API and the console.

mod accuracy;
mod api;
mod browser;
mod contract;
mod dry_run;
mod foreign;
mod fuzz;
mod generator;
mod kit;
mod lease;
mod migrations;
mod plan;
mod probe;
mod server;
mod tls;
mod verdict;
