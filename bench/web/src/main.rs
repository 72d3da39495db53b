//! Pages and JSON of Hob beside nginx serving a static file of the same size:
//! `cargo build --release -p hob && cargo run --release -p bench-web [SECONDS]`.
//!
//! Needs `nginx` and `wrk` on the PATH (Debian packages `nginx-light` and `wrk`). Everything listens on loopback. Each
//! pair is measured in turns, three rounds, and the median round is printed.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod load;
mod servers;

use anyhow::Result;

use load::{Figures, measure};
use servers::{Hob, Nginx};

const ROUNDS: usize = 3;

/// What is asked of Hob.
const PATHS: [(&str, &str); 2] = [("Overview page", "/"), ("JSON read", "/api/v1/uptime/monitors")];

fn main() -> Result<()> {
    let seconds: u32 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5);
    let hob = Hob::start()?;
    println!(
        "| | bytes | requests/s | p99 | CPU µs per request | throughput of nginx |\n|---|---|---|---|---|---|"
    );
    for (name, path) in PATHS {
        let body = hob.get(path)?;
        let nginx = Nginx::start(&body)?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(measure(&hob.url(path), &hob.processes(), seconds)?);
            theirs.push(measure(&nginx.url(), &nginx.processes(), seconds)?);
        }
        let (ours, theirs) = (median(ours), median(theirs));
        let ratio = 100.0 * ours.per_second / theirs.per_second;
        print_row(&format!("Hob: {name}"), body.len(), &ours, &format!("{ratio:.0} %"));
        print_row("nginx: a file of that size", body.len(), &theirs, "");
    }
    Ok(())
}

fn print_row(name: &str, bytes: usize, figures: &Figures, ratio: &str) {
    let Figures { per_second, p99_ms, cpu_us } = figures;
    println!("| {name} | {bytes} | {per_second:.0} | {p99_ms:.2} ms | {cpu_us:.0} | {ratio} |");
}

fn median(mut rounds: Vec<Figures>) -> Figures {
    rounds.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
    rounds.swap_remove(rounds.len() / 2)
}
