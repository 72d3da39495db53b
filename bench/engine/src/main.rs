//! The embedded store compared with redis-server: calls over TCP, calls in process, and memory.
//!
//!     cargo run --profile dist -p bench-engine            prints the table of docs/benchmarks/engine.md
//!     cargo run --profile dist -p bench-engine -- quick   the same with a tenth of the work
//!     … -- profile gcra 10000                             only this call (incr, gcra) in process, for a profiler
//!
//! Runs alternate, and the median of three is printed. Absolute numbers depend on the machine: compare the ratios.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod in_process;
mod memory;
mod process;
mod tcp;

use anyhow::Result;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => compare(1),
        ["quick"] => compare(10),
        ["serve"] => process::serve(),
        ["profile", kind, count] => in_process::profile(kind, count.parse()?),
        ["fill", count] => memory::fill(count.parse()?),
        other => anyhow::bail!("unknown arguments {other:?}; usage: bench-engine [quick]"),
    }
}

fn compare(divisor: usize) -> Result<()> {
    println!("## In process\n");
    in_process::compare(200_000 / divisor)?;
    println!("\n## Over TCP\n");
    tcp::compare(500_000 / divisor)?;
    println!("\n## Memory\n");
    memory::compare(1_000_000 / divisor)
}

/// The median of three measurements.
fn median(mut values: [f64; 3]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[1]
}
