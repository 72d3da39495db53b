//! As many requests as a tool can make: what one costs it.

use anyhow::Result;
use bench_kit::median;

use crate::server::{Mood, Server};
use crate::tools::{Done, Pace, Tool, Tools};

const ROUNDS: usize = 5;

pub(crate) fn compare(server: &Server, tools: &Tools, seconds: u32) -> Result<()> {
    server.set(Mood::Prompt);
    let mut rounds: Vec<Vec<Done>> = Tool::ALL.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for (tool, rounds) in Tool::ALL.into_iter().zip(&mut rounds) {
            rounds.push(tools.run(tool, server, Pace::AllItCan, seconds)?);
        }
    }
    println!(
        "| 64 connections, {seconds} s | requests/s | CPU µs per request | relative to Hob | bytes per request |\n\
         |---|---|---|---|---|"
    );
    let medians: Vec<Done> = rounds.into_iter().map(|rounds| median(rounds, cpu_us)).collect();
    for (tool, done) in Tool::ALL.into_iter().zip(&medians) {
        let (cost, ours) = (cpu_us(done), cpu_us(&medians[0]));
        println!(
            "| {} | {:.0} | {cost:.2} | {:.2} × | {} |",
            tool.name(),
            done.requests as f64 / f64::from(seconds),
            cost / ours,
            done.bytes_each
        );
    }
    Ok(())
}

fn cpu_us(done: &Done) -> f64 {
    done.cpu.as_secs_f64() * 1e6 / done.requests.max(1) as f64
}
