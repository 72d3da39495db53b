//! The load generator compared with wrk, hey, ab, oha and locust:
//! `cargo run --profile dist -p bench-load [throughput SECONDS | tails | memory]`; without an argument, all three.
//!
//! Needs `wrk`, `hey`, `ab` and `taskset` (Debian packages `wrk`, `hey`, `apache2-utils`, `util-linux`), and installs
//! oha and locust under `target/bench`. The server has one core, the generator the other. Requests differ only
//! in the headers that a tool always sends. Requests and CPU time are counted from the first request on. Hob runs with a
//! check and its histograms.

#![expect(clippy::print_stdout, reason = "a benchmark prints its tables")]

mod generate;
mod memory;
mod reported;
mod server;
mod tails;
mod throughput;
mod tools;

use anyhow::{Result, bail};
use bench_kit::Core;

use server::Server;
use tools::Tools;

const CONNECTIONS: u32 = 64;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["generate", url, pace, seconds] = words[..] {
        return generate::generate(url, pace.parse()?, seconds.parse()?);
    }
    let tools = Tools::install()?;
    Core::First.pin_this_process()?;
    let server = Server::start()?;
    match words[..] {
        ["throughput"] => throughput::compare(&server, &tools, 4),
        ["throughput", seconds] => throughput::compare(&server, &tools, seconds.parse()?),
        ["tails"] => tails::compare(&server, &tools),
        ["memory"] => memory::measure(&server, &tools),
        [] => {
            throughput::compare(&server, &tools, 4)?;
            tails::compare(&server, &tools)?;
            memory::measure(&server, &tools)
        }
        _ => bail!("usage: bench-load [throughput [SECONDS] | tails | memory]"),
    }
}
