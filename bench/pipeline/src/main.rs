//! Item transitions per second with a step that does nothing: Hob on its embedded store and on Redis, BullMQ and RQ on the
//! same Redis. An item makes two transitions, waiting → claimed → done. Then the memory in the store per item in flight.
//!
//! `cargo run --profile dist -p bench-pipeline [ITEMS] [PART]...`. The parts are `embedded`, `redis`, `bullmq`, `rq` and
//! `memory`; the default is all parts. Needs `redis-server`, `node`, `npm` and `python3` on the PATH.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod memory;
mod others;
mod ours;

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use bench_kit::{Process, free_address, wait_for};
use hob_store::Address;

/// BullMQ and RQ are slower and process a fraction of the items.
const BULLMQ_SHARE: u64 = 10;
const RQ_SHARE: u64 = 100;

const PARTS: [&str; 5] = ["embedded", "redis", "bullmq", "rq", "memory"];

/// The time that a system used for all its items.
struct Cost {
    items: u64,
    elapsed: Duration,
    /// CPU time of all processes, including Redis.
    cpu: Duration,
}

fn main() -> Result<()> {
    let (mut items, mut parts) = (100_000, Vec::new());
    for argument in std::env::args().skip(1) {
        match argument.parse::<u64>() {
            Ok(number) => items = number.max(1_000),
            Err(_) if PARTS.contains(&argument.as_str()) => parts.push(argument),
            Err(_) => bail!("{argument:?} is neither a number of items nor one of {}", PARTS.join(", ")),
        }
    }
    let selected = |part: &str| parts.is_empty() || parts.iter().any(|selected| selected == part);
    let (redis, address) = redis()?;
    let redis = redis.id();
    let runtime = tokio::runtime::Runtime::new()?;
    println!("| system | items | seconds | transitions/s | CPU seconds | CPU µs per transition |");
    println!("|---|---:|---:|---:|---:|---:|");
    if selected("embedded") {
        print_row("Hob, embedded engine", &runtime.block_on(ours::run(&Address::Embedded, items, None))?);
    }
    if selected("redis") {
        let address = format!("redis://{address}").parse()?;
        print_row("Hob, Redis", &runtime.block_on(ours::run(&address, items, Some(redis)))?);
    }
    if selected("bullmq") {
        print_row("BullMQ, Redis", &others::bullmq(address, redis, (items / BULLMQ_SHARE).max(1_000))?);
    }
    if selected("rq") {
        print_row("RQ, Redis", &others::rq(address, redis, (items / RQ_SHARE).max(1_000))?);
    }
    if selected("memory") {
        runtime.block_on(memory::print(address))?;
    }
    Ok(())
}

/// A Redis without persistence.
fn redis() -> Result<(Process, SocketAddr)> {
    let address = free_address()?;
    let port = address.port().to_string();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    let redis = Process::start(command.stdout(Stdio::null()))?;
    wait_for(address)?;
    Ok((redis, address))
}

fn print_row(system: &str, cost: &Cost) {
    let (items, elapsed, cpu) = (cost.items, cost.elapsed.as_secs_f64(), cost.cpu.as_secs_f64());
    let transitions = 2.0 * items as f64;
    let (rate, each) = (transitions / elapsed, cpu * 1e6 / transitions);
    println!("| {system} | {items} | {elapsed:.1} | {rate:.0} | {cpu:.1} | {each:.0} |");
}
