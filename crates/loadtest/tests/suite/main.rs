//! Contract and accuracy tests of load tests.

mod accuracy;
mod contract;
mod generator;
mod oracle;
mod plan;
mod site;
