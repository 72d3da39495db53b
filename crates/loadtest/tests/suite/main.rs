//! Contract and accuracy tests of load tests.

mod accuracy;
mod generator;
mod oracle;
mod plan;
