//! The contract of the store on every store, and its behaviour when servers fail.

mod batch;
mod bus;
mod cluster;
mod degraded;
mod embedded;
mod failure;
mod limit;
mod limit_model;
mod loan;
mod log;
mod members;
mod rebuild;
mod repair;
mod rewind;
mod sentinel;
