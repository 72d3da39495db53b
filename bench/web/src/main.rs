//! Pages and JSON of Hob compared with nginx serving a static file of the same size:
//! `cargo build --profile dist -p hob && cargo run --profile dist -p bench-web [SECONDS]`.
//!
//! Needs `nginx` and `wrk` on the PATH (Debian packages `nginx-light` and `wrk`). Everything listens on loopback. Each
//! pair is measured in turns, three rounds, and the median round is printed.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod servers;

use std::process::Command;

use anyhow::Result;
use bench_kit::{Process, Usage, Wrk, median, wrk};

use servers::{Hob, nginx};

const ROUNDS: usize = 3;

const CONNECTIONS: u32 = 32;

/// The requested paths of Hob.
const PATHS: [(&str, &str); 2] = [("Overview page", "/"), ("JSON read", "/api/v1/uptime/monitors")];

fn main() -> Result<()> {
    let seconds: u32 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5);
    let hob = Hob::start()?;
    println!(
        "| | bytes | requests/s | p99 | CPU µs per request | relative to nginx |\n|---|---|---|---|---|---|"
    );
    for (name, path) in PATHS {
        let body = hob.get(path)?;
        let nginx = nginx(&body)?;
        let file = format!("http://{}/file", nginx.address);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(measure(&hob.process, &hob.url(path), seconds)?);
            theirs.push(measure(&nginx.process, &file, seconds)?);
        }
        let (ours, theirs) = (median(ours, Figures::rate), median(theirs, Figures::rate));
        let ratio = 100.0 * ours.rate() / theirs.rate();
        print_row(&format!("Hob: {name}"), body.len(), &ours, &format!("{ratio:.0} %"));
        print_row("nginx: a file of that size", body.len(), &theirs, "");
    }
    Ok(())
}

/// The results of a round.
struct Figures {
    wrk: Wrk,
    cpu_us: f64,
}

impl Figures {
    fn rate(&self) -> f64 {
        self.wrk.per_second
    }
}

fn measure(server: &Process, url: &str, seconds: u32) -> Result<Figures> {
    let usage = Usage::start(server.family())?;
    let wrk = wrk(&mut Command::new("wrk"), url, CONNECTIONS, seconds)?;
    Ok(Figures { wrk, cpu_us: usage.us_each(wrk.requests)? })
}

fn print_row(name: &str, bytes: usize, figures: &Figures, ratio: &str) {
    let Figures { wrk: Wrk { per_second, p99, .. }, cpu_us } = figures;
    let p99_ms = p99.as_secs_f64() * 1e3;
    println!("| {name} | {bytes} | {per_second:.0} | {p99_ms:.2} ms | {cpu_us:.0} | {ratio} |");
}
