//! Tests of contracts, verdicts, the API and the console.

mod api;
mod browser;
mod contract;
mod dry_run;
mod editor;
mod foreign;
mod kit;
mod lease;
mod migrations;
mod verdict;
