//! What the benchmarks share: processes and what they cost, the peers that several are compared with, and medians.
//!
//! Every benchmark measures its peers in turns within one run, prints CPU time beside wall time, and prints the table
//! that its page under `docs/benchmarks` shows.

mod nginx;
mod packages;
mod process;
mod usage;
mod wrk;

pub use nginx::Nginx;
pub use packages::{installed_by_cargo, node_modules, python};
pub use process::{Core, Process, free_address, hob, output, wait_for};
pub use usage::{Usage, cpu, cpu_of_ended_children, resident};
pub use wrk::{Wrk, wrk};

/// The middle one by `key`: of rounds on a noisy machine neither the best nor the worst says much.
///
/// # Panics
/// If there is none.
pub fn median<T>(mut rounds: Vec<T>, key: impl Fn(&T) -> f64) -> T {
    rounds.sort_by(|a, b| key(a).total_cmp(&key(b)));
    let middle = rounds.len() / 2;
    rounds.swap_remove(middle)
}
