//! The memory of the generator during one long run, after one to twenty million requests.

use std::time::Duration;

use anyhow::Result;
use bench_kit::{Process, resident};

use crate::server::{Behaviour, Server};
use crate::tools::{Pace, Tool, Tools};

const MILLIONS: [u64; 5] = [1, 2, 5, 10, 20];
/// Longer than twenty million requests take.
const SECONDS: u32 = 3600;

pub(crate) fn measure(server: &Server, tools: &Tools) -> Result<()> {
    server.set(Behaviour::Immediate);
    let before = server.served();
    let mut command = tools.command(Tool::Hob, &server.url(), Pace::Unlimited, SECONDS)?;
    let generator = Process::start(&mut command)?;
    println!("\n| million requests | resident memory | relative to the first |\n|---|---|---|");
    let mut first = None;
    for millions in MILLIONS {
        while server.served() - before < millions * 1_000_000 {
            std::thread::sleep(Duration::from_millis(20));
        }
        let bytes = resident(generator.id())? as f64;
        let share = bytes / *first.get_or_insert(bytes);
        println!("| {millions} | {:.2} MiB | {:.1} % |", bytes / f64::from(1 << 20), share * 100.0);
    }
    Ok(())
}
