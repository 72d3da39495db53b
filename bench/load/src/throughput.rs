//! The maximum request rate of each tool, and its CPU time per request.

use anyhow::Result;
use bench_kit::median;

use crate::server::{Behaviour, Server};
use crate::tools::{Measurement, Pace, Tool, Tools};

const ROUNDS: usize = 5;

pub(crate) fn compare(server: &Server, tools: &Tools, seconds: u32) -> Result<()> {
    server.set(Behaviour::Immediate);
    let mut rounds: Vec<Vec<Measurement>> = Tool::ALL.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for (tool, rounds) in Tool::ALL.into_iter().zip(&mut rounds) {
            rounds.push(tools.run(tool, server, Pace::Unlimited, seconds)?);
        }
    }
    println!(
        "| 64 connections, {seconds} s | requests/s | CPU µs per request | relative to Hob | bytes per request |\n\
         |---|---|---|---|---|"
    );
    let medians: Vec<Measurement> = rounds.into_iter().map(|rounds| median(rounds, cpu_us)).collect();
    for (tool, measurement) in Tool::ALL.into_iter().zip(&medians) {
        let (cost, hob) = (cpu_us(measurement), cpu_us(&medians[0]));
        println!(
            "| {} | {:.0} | {cost:.2} | {:.2} × | {} |",
            tool.name(),
            measurement.requests as f64 / f64::from(seconds),
            cost / hob,
            measurement.bytes_each
        );
    }
    Ok(())
}

fn cpu_us(measurement: &Measurement) -> f64 {
    measurement.cpu.as_secs_f64() * 1e6 / measurement.requests.max(1) as f64
}
