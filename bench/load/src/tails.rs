//! The tail latencies that each tool reports for a server with a known tail.

use std::time::Duration;

use anyhow::Result;

use crate::server::{Behaviour, Server};
use crate::tools::{Pace, Tool, Tools};

const RATE: u32 = 500;
const SECONDS: u32 = 10;
const SLOW: Behaviour = Behaviour::RarelySlow { one_in: 200, latency: Duration::from_millis(100) };
const FREEZE_AFTER: Duration = Duration::from_secs(4);
const FREEZE: Duration = Duration::from_secs(2);

pub(crate) fn compare(server: &Server, tools: &Tools) -> Result<()> {
    println!(
        "\n| one in 200 takes 100 ms | pace | p99 reported | p99 at the server | p99.9 reported | p99.9 at the server |\n\
         |---|---|---|---|---|---|"
    );
    for tool in Tool::ALL {
        server.set(SLOW);
        let reported = tools.run(tool, server, Pace::PerSecond(RATE), SECONDS)?.reported;
        let (p99, p999) = (server.quantile(0.99), server.quantile(0.999));
        println!(
            "| {} | {} | {} | {} | {} | {} |",
            tool.name(),
            pace(tool),
            ms(reported.p99),
            ms(Some(p99)),
            ms(reported.p999),
            ms(Some(p999))
        );
    }
    println!("\n| the server stops for 2 s of 10 | pace | p99 reported | true p99 |\n|---|---|---|---|");
    for tool in Tool::ALL {
        server.set(Behaviour::Freezing { after: FREEZE_AFTER, duration: FREEZE });
        let reported = tools.run(tool, server, Pace::PerSecond(RATE), SECONDS)?.reported;
        println!("| {} | {} | {} | {} |", tool.name(), pace(tool), ms(reported.p99), ms(Some(frozen_p99())));
    }
    server.set(Behaviour::Immediate);
    Ok(())
}

/// The true p99 of the wait. A request that arrives while the server is stopped waits until it resumes; other requests do
/// not wait.
fn frozen_p99() -> Duration {
    let all = RATE * SECONDS;
    let arrives = |number: u32| Duration::from_secs_f64(f64::from(number) / f64::from(RATE));
    let (begin, end) = (FREEZE_AFTER, FREEZE_AFTER + FREEZE);
    let mut waits: Vec<Duration> = (0..all)
        .map(arrives)
        .map(|at| if at < begin { Duration::ZERO } else { end.saturating_sub(at) })
        .collect();
    waits.sort_unstable();
    waits[(waits.len() * 99).div_ceil(100) - 1]
}

fn pace(tool: Tool) -> String {
    if tool.has_pace() { format!("{RATE}/s") } else { "unlimited".to_owned() }
}

fn ms(latency: Option<Duration>) -> String {
    latency
        .map_or_else(|| "not reported".to_owned(), |latency| format!("{:.2} ms", latency.as_secs_f64() * 1e3))
}
