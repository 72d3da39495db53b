//! Shared by the benchmarks: processes and their resource usage, common peers, and medians.
//!
//! Every benchmark measures its peers in turns within one run, prints CPU time and wall time, and prints the table
//! of its page under `docs/benchmarks`.

mod nginx;
mod packages;
mod process;
mod usage;
mod wrk;

pub use nginx::Nginx;
pub use packages::{built_by_cargo, installed_by_cargo, node_modules, python};
pub use process::{Core, Process, free_address, hob, output, wait_for};
pub use usage::{Usage, cpu, cpu_of_ended_children, resident};
pub use wrk::{Wrk, wrk};

/// The median round by `key`. On a noisy machine, the best and the worst round are not representative.
///
/// # Panics
/// If `rounds` is empty.
pub fn median<T>(mut rounds: Vec<T>, key: impl Fn(&T) -> f64) -> T {
    rounds.sort_by(|a, b| key(a).total_cmp(&key(b)));
    let middle = rounds.len() / 2;
    rounds.swap_remove(middle)
}
