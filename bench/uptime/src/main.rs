//! Checks of Hob's probe beside those of prometheus-blackbox-exporter: `cargo run --release -p bench-uptime [SECONDS]`.
//!
//! `cargo run --release -p bench-uptime service [SECONDS]` measures the whole service instead: claims, checks, results in
//! the records, and how late checks begin.
//!
//! Needs `prometheus-blackbox-exporter` on the PATH (the Debian package of that name). Everything listens on loopback.
//! The target, the probe and the exporter are processes of their own, so that what each of them costs can be told
//! apart. They are measured in turns, three rounds, and the median round is printed.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod exporter;
mod figures;
mod prober;
mod process;
mod target;
mod worker;

use anyhow::{Result, bail};

use exporter::Exporter;
use figures::Figures;
use process::Process;
use worker::Load;

const ROUNDS: usize = 3;

/// How many checks are under way at a time.
const CONCURRENCY: usize = 64;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["target"] => runtime()?.block_on(target::serve()),
        ["worker", url, monitors, interval_s, seconds] => {
            let load = Load { monitors: monitors.parse()?, interval_s: interval_s.parse()? };
            runtime()?.block_on(worker::run(url, load, seconds.parse()?))
        }
        ["service", seconds] => service(seconds.parse()?),
        ["probe", url, seconds] => runtime()?.block_on(prober::run(url, seconds.parse()?)),
        [] => compare(5),
        [seconds] => compare(seconds.parse()?),
        _ => bail!("at most a number of seconds, or `service` and a number of seconds"),
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
    Figures::median(ours).print("Hob's probe");
    Figures::median(theirs).print("prometheus-blackbox-exporter");
    Ok(())
}

/// The whole service: as much as it can, and what it was made for.
fn service(seconds: u64) -> Result<()> {
    let mut target = Process::own(&["target"])?;
    let url = target.first_line()?;
    println!("| monitors | checks/s | late p50 | late p99 | late p99.9 | CPU µs per check | resident |");
    println!("|---|---|---|---|---|---|---|");
    for (monitors, interval_s) in [(1_000, 1), (10_000, 1), (1_000, 60), (10_000, 60)] {
        worker::measure(&url, Load { monitors, interval_s }, seconds)?;
    }
    Ok(())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Runtime::new()?)
}
