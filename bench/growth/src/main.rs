//! The cost of each system at 1, 10 and 100 times its size:
//! `cargo build --release -p hob && cargo run --release -p bench-growth [SYSTEM]...`.
//!
//! Each measurement starts the server with its own redis-server and SQLite, fills it to a size, does a fixed amount of work,
//! and prints the CPU time of both processes per unit of work. The exponent is the slope of the cost over the size on
//! logarithmic axes: 0 if the cost of a unit does not depend on the size, 1 if it grows in proportion.
//!
//! The systems are those of `SYSTEMS`; the default is all of them. Needs `redis-server` on the PATH.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod deployment;
mod systems;

use anyhow::{Result, bail};
use futures_util::future::LocalBoxFuture;

use deployment::Cost;

/// A system and what its size is.
struct System {
    name: &'static str,
    size: &'static str,
    unit: &'static str,
    smallest: u64,
    measure: fn(u64) -> LocalBoxFuture<'static, Result<Cost>>,
}

const SYSTEMS: &[System] = &[
    System {
        name: "gateway",
        size: "callers of a rule",
        unit: "check of a limit",
        smallest: 1_000,
        measure: |size| Box::pin(systems::gateway::measure(size)),
    },
    System {
        name: "uptime",
        size: "monitors",
        unit: "check of a monitor",
        smallest: 100,
        measure: |size| Box::pin(systems::uptime::measure(size)),
    },
    System {
        name: "chat",
        size: "conversations",
        unit: "message",
        smallest: 100,
        measure: |size| Box::pin(systems::chat::measure(size, 3)),
    },
    System {
        name: "chat-room",
        size: "members of a conversation",
        unit: "message",
        smallest: 10,
        measure: |size| Box::pin(systems::chat::measure(1, size)),
    },
    System {
        name: "load",
        size: "virtual users",
        unit: "request",
        smallest: 10,
        measure: |size| Box::pin(systems::load::measure(size)),
    },
    System {
        name: "pipeline",
        size: "items of a run",
        unit: "item",
        smallest: 300,
        measure: |size| Box::pin(systems::pipeline::measure(size)),
    },
];

const FACTORS: [u64; 3] = [1, 10, 100];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = chosen.iter().find(|name| !SYSTEMS.iter().any(|system| system.name == **name)) {
        let names: Vec<&str> = SYSTEMS.iter().map(|system| system.name).collect();
        bail!("{unknown:?} is not one of {}", names.join(", "));
    }
    println!(
        "| system | size | a unit is a | CPU µs per unit ×1 | ×10 | ×100 | of Redis ×1, ×10, ×100 | exponent |"
    );
    println!("|---|---|---|---:|---:|---:|---:|---:|");
    for system in
        SYSTEMS.iter().filter(|system| chosen.is_empty() || chosen.iter().any(|name| name == system.name))
    {
        let mut costs = Vec::new();
        for factor in FACTORS {
            costs.push((system.measure)(system.smallest * factor).await?);
        }
        print_row(system, &costs);
    }
    Ok(())
}

fn print_row(system: &System, costs: &[Cost]) {
    let each: Vec<String> = costs.iter().map(|cost| format!("{:.0}", cost.total_us())).collect();
    let redis: Vec<String> = costs.iter().map(|cost| format!("{:.0}", cost.redis_us)).collect();
    println!(
        "| {} | {} {}, and 10 and 100 times as many | {} | {} | {} | {:+.2} |",
        system.name,
        system.smallest,
        system.size,
        system.unit,
        each.join(" | "),
        redis.join(", "),
        exponent(costs)
    );
}

/// The slope of the line through the logarithms. With sizes of 1, 10 and 100, the middle one has no influence on it.
fn exponent(costs: &[Cost]) -> f64 {
    match costs {
        [first, _, last] => (last.total_us() / first.total_us()).log10() / 2.0,
        _ => f64::NAN,
    }
}
