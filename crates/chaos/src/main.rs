//! Three nodes under traffic while faults are injected: `cargo xtask chaos`. See `docs/chaos.md`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a person at a terminal")]

mod fault;
mod http;
mod report;
mod run;
mod schedule;
mod seed;
mod soak;
mod system;
mod systems;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use world::Setup;

/// How long a run may take in addition: to start, for the last round, and to end.
const MAX_EXTRA_MINUTES: u64 = 10;

#[derive(Debug, Parser)]
#[command(
    name = "hob-chaos",
    about = "Inject faults into three nodes under traffic, and check what Hob guarantees"
)]
pub(crate) struct Options {
    /// How long to run; no round of faults and checks begins after that
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    minutes: u32,
    /// The seed of the faults and the traffic; random if not given
    #[arg(long)]
    seed: Option<u64>,
    /// How Redis is set up; the seed decides if not given
    #[arg(long)]
    setup: Option<Setup>,
    /// Inject no faults, and record the use of memory, open files, keys and rows
    #[arg(long)]
    soak: bool,
    /// How many times the usual traffic the gateway and chat get
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    traffic: u32,
    /// The binary under test
    #[arg(long, default_value = "target/debug/hob")]
    hob: PathBuf,
    /// The folder for the nodes' files and logs
    #[arg(long, default_value = "target/chaos")]
    folder: PathBuf,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let limit = Duration::from_secs(60 * (u64::from(options.minutes) + MAX_EXTRA_MINUTES));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("chaos: cannot start a runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(async { tokio::time::timeout(limit, run::run(&options)).await });
    // Tasks that still run hold servers, which end with them.
    runtime.shutdown_timeout(Duration::from_secs(5));
    match ended {
        Ok(Ok(0)) => ExitCode::SUCCESS,
        Ok(Ok(violations)) => {
            eprintln!("chaos: {violations} violations");
            ExitCode::FAILURE
        }
        Ok(Err(error)) => {
            eprintln!("chaos: {error:#}");
            ExitCode::FAILURE
        }
        Err(_) => {
            eprintln!("chaos: the run did not end within {limit:?}");
            ExitCode::FAILURE
        }
    }
}
