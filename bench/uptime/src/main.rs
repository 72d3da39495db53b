//! Hob's probe compared with prometheus-blackbox-exporter: `cargo run --profile dist -p bench-uptime [SECONDS]`.
//!
//! `cargo run --profile dist -p bench-uptime service [SECONDS [REDIS_URL]]` measures the whole service instead: claims, checks,
//! results in the database, the delay of checks, and the rebuild after a FLUSHALL. With a URL it uses that Redis instead of
//! the embedded store, and flushes it.
//!
//! Needs `prometheus-blackbox-exporter` on the PATH (the Debian package of that name). Everything listens on loopback.
//! The target, the probe and the exporter are separate processes, so that their cost can be measured separately. They are
//! measured in turns, three rounds, and the median round is printed.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod exporter;
mod figures;
mod prober;
mod target;
mod worker;

use anyhow::{Result, bail};
use bench_kit::{Process, median};

use exporter::Exporter;
use worker::Load;

const ROUNDS: usize = 3;

const EMBEDDED: &str = "embedded://";

/// Concurrent checks of the bare probe.
const CONCURRENCY: usize = 64;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["target"] => runtime()?.block_on(target::serve()),
        ["worker", url, store, monitors, interval_s, seconds] => {
            let (monitors, interval_s) = (monitors.parse()?, interval_s.parse()?);
            let load = Load { monitors, interval_s, seconds: seconds.parse()? };
            runtime()?.block_on(load.run(url, store))
        }
        ["service"] => service(70, EMBEDDED),
        ["service", seconds] => service(seconds.parse()?, EMBEDDED),
        ["service", seconds, store] => service(seconds.parse()?, store),
        ["probe", url, seconds] => runtime()?.block_on(prober::run(url, seconds.parse()?)),
        [] => compare(5),
        [seconds] => compare(seconds.parse()?),
        _ => bail!("usage: bench-uptime [SECONDS | service [SECONDS [REDIS_URL]]]"),
    }
}

fn compare(seconds: u64) -> Result<()> {
    let mut target = Process::own(&["target"])?;
    let url = target.first_line()?;
    let exporter = Exporter::start()?;
    let runtime = runtime()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(prober::measure(&url, seconds)?);
        theirs.push(runtime.block_on(exporter.measure(&url, seconds))?);
    }
    println!("| {CONCURRENCY} at a time | checks/s | p50 | p99 | CPU µs per check |\n|---|---|---|---|---|");
    median(ours, |round| round.per_second).print("Hob's probe");
    median(theirs, |round| round.per_second).print("prometheus-blackbox-exporter");
    Ok(())
}

/// Measures the whole service, at the designed load and above it.
fn service(seconds: u64, store: &str) -> Result<()> {
    let mut target = Process::own(&["target"])?;
    let url = target.first_line()?;
    println!("{}", worker::HEAD);
    for (monitors, interval_s, seconds) in
        [(1_000, 1, 10), (10_000, 60, seconds), (10_000, 10, 20), (10_000, 1, 10)]
    {
        Load { monitors, interval_s, seconds }.measure(&url, store)?;
    }
    Ok(())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Runtime::new()?)
}
