//! The load generator beside wrk, hey and ab: `cargo run --release -p bench-load [SECONDS]`.
//!
//! Needs `wrk`, `hey`, `ab` and `taskset` on the PATH (Debian packages `wrk`, `hey`, `apache2-utils`, `util-linux`); a
//! tool that is missing is left out. The server has one core, the generator the other, all send the same request and
//! get the same bytes, in turns, five rounds; the median round is printed. Requests are counted by the server, CPU time
//! by the kernel. Hob has checks and its histograms on.
//!
//! Then the server stands still for two seconds, and each tool says what it made of it. All of them except Hob are
//! closed loops, which is the point.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod server;
mod tools;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use server::Server;
use tools::{Figures, Tool};

const ROUNDS: usize = 5;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, url, seconds] = arguments.as_slice()
        && word == "generate"
    {
        return tools::generate(url, seconds.parse()?);
    }
    let seconds: u32 = arguments.first().and_then(|text| text.parse().ok()).unwrap_or(5);
    pin_to_first_core()?;
    let server = Server::start()?;
    let tools: Vec<Tool> = Tool::ALL.into_iter().filter(Tool::is_there).collect();
    throughput(&server, &tools, seconds)?;
    freeze(&server, &tools)
}

/// All threads of this process, the server's above all, stay on the first core.
fn pin_to_first_core() -> Result<()> {
    let pid = std::process::id().to_string();
    let pinned = Command::new("taskset").args(["-cp", "0", &pid]).output().context("taskset")?;
    anyhow::ensure!(pinned.status.success(), "taskset could not pin this process");
    Ok(())
}

fn throughput(server: &Server, tools: &[Tool], seconds: u32) -> Result<()> {
    let mut rounds: Vec<Vec<Figures>> = tools.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for (tool, rounds) in tools.iter().zip(&mut rounds) {
            rounds.push(tool.measure(server, seconds)?);
        }
    }
    println!(
        "| 64 connections | requests/s | CPU µs per request | requests per CPU-second |\n|---|---|---|---|"
    );
    for (tool, mut rounds) in tools.iter().zip(rounds) {
        rounds.sort_by(|a, b| a.cpu_us.total_cmp(&b.cpu_us));
        let Figures { per_second, cpu_us, .. } = rounds[rounds.len() / 2];
        println!("| {} | {per_second:.0} | {cpu_us:.2} | {:.0} |", tool.name(), 1e6 / cpu_us);
    }
    Ok(())
}

fn freeze(server: &Server, tools: &[Tool]) -> Result<()> {
    println!("\n| the server stands still for 2 s of 10 | reported p99 |\n|---|---|");
    for tool in tools {
        server.freeze_after(Duration::from_secs(4), Duration::from_secs(2));
        println!("| {} | {} |", tool.name(), tool.measure_slowly(server)?);
    }
    println!("| in truth, of 500 a second | 1.95 s |");
    Ok(())
}
