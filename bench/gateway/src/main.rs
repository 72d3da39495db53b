//! The gateway compared with nginx, HAProxy and Express: `cargo run --profile dist -p bench-gateway [SECONDS]`.
//!
//! Needs `nginx`, `haproxy`, `redis-server`, `node` with `npm`, `wrk` and `taskset` on the PATH (Debian packages
//! `nginx-light`, `haproxy`, `redis-server`, `nodejs`, `npm`, `wrk`, `util-linux`), and two cores. Each proxy has one
//! worker on the first core; the load generator, the upstream and Redis share the second. All proxies limit by the
//! client's address, with limits that are never reached, and keep their connections to the upstream open. Hob also
//! counts every request.
//!
//! Each round, of three, measures all proxies in turn: first full load over 64 connections, then half of that load at a
//! constant rate, through the proxy and directly to the upstream. The difference of the two p99s is the added latency.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod hob;
mod paced;
mod peers;
mod record;
mod store;
mod upstream;

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use bench_kit::{Core, Usage, median, wrk};

use peers::Peer;
use store::Store;

const ROUNDS: usize = 3;
const CONNECTIONS: u32 = 64;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, toml, store] = arguments.as_slice()
        && word == "gateway"
    {
        return hob::run(toml, store);
    }
    let seconds: u32 = arguments.first().and_then(|text| text.parse().ok()).unwrap_or(2);
    Core::Second.pin_this_process()?;
    let (upstream, store) = (upstream::start()?, Store::start()?);
    let peers = Peer::all(upstream, &store)?;
    for peer in &peers {
        Core::First.pin(&peer.process)?;
    }
    let mut rounds: Vec<Vec<Figures>> = peers.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for (peer, rounds) in peers.iter().zip(&mut rounds) {
            rounds.push(measure(peer, upstream, &store, seconds)?);
        }
    }
    print(&peers, rounds);
    println!("\nRecording a request takes {:.1} ns of CPU time, folding included.", record::measure());
    Ok(())
}

/// The results of a round.
struct Figures {
    per_second: f64,
    cpu_us: f64,
    p99: Duration,
    /// At half load: the p99 through the proxy, and directly to the upstream.
    half: Duration,
    direct: Duration,
    /// Messages to the store, and commands that the store executed, per request.
    sent: f64,
    ran: f64,
}

fn measure(peer: &Peer, upstream: std::net::SocketAddr, store: &Store, seconds: u32) -> Result<Figures> {
    let url = format!("http://{}/api/things/7", peer.address);
    wrk(&mut Command::new("wrk"), &url, CONNECTIONS, 1)?;
    let (before, usage) = (store.counts()?, Usage::start(peer.process.family())?);
    let full = wrk(&mut Command::new("wrk"), &url, CONNECTIONS, seconds)?;
    let cpu_us = usage.us_each(full.requests)?;
    let counts = store.counts()?;
    let each = |count: u64| count as f64 / full.requests as f64;
    let duration = Duration::from_secs(u64::from(seconds));
    let half = paced::p99(peer.address, full.per_second / 2.0, duration)?;
    let direct = paced::p99(upstream, full.per_second / 2.0, duration)?;
    Ok(Figures {
        per_second: full.per_second,
        cpu_us,
        p99: full.p99,
        half,
        direct,
        sent: each(counts.sent - before.sent),
        ran: each(counts.ran - before.ran),
    })
}

fn print(peers: &[Peer], rounds: Vec<Vec<Figures>>) {
    println!(
        "| | requests/s | CPU µs per request | p99 | p99 at half load | added to the upstream's p99 | messages to \
         Redis per request | commands in Redis per request |\n|---|---|---|---|---|---|---|---|"
    );
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    for (peer, rounds) in peers.iter().zip(rounds) {
        let added = median(rounds.iter().map(|round| us(round.half) - us(round.direct)).collect(), |us| *us);
        let half = median(rounds.iter().map(|round| us(round.half)).collect(), |us| *us);
        let Figures { per_second, cpu_us, p99, sent, ran, .. } = median(rounds, |round| round.per_second);
        println!(
            "| {} | {per_second:.0} | {cpu_us:.1} | {:.2} ms | {half:.0} µs | {added:.0} µs | {sent:.3} | {ran:.3} |",
            peer.name,
            us(p99) / 1e3,
        );
    }
}
