//! Contract and accuracy tests of load tests.

mod accuracy;
mod api;
mod contract;
mod generator;
mod oracle;
mod plan;
mod site;
