//! Contract and accuracy tests of load tests.

mod accuracy;
mod api;
mod browser;
mod contract;
mod fuzz;
mod generator;
mod oracle;
mod plan;
mod site;
mod tls;
mod witness;
