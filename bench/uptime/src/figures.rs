//! The result of a round of checks.

use std::time::Duration;

use anyhow::{Context, Result};

#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) per_second: f64,
    p50_us: f64,
    p99_us: f64,
    /// CPU time of the checking process, without the target and the client.
    cpu_us: f64,
}

impl Figures {
    pub(crate) fn new(mut latencies: Vec<Duration>, took: Duration, cpu: Duration) -> Result<Self> {
        latencies.sort_unstable();
        let count = latencies.len();
        let at =
            |share: f64| latencies.get((count as f64 * share) as usize).map(|took| took.as_secs_f64() * 1e6);
        Ok(Self {
            per_second: count as f64 / took.as_secs_f64(),
            p50_us: at(0.5).context("no check completed")?,
            p99_us: at(0.99).context("no check completed")?,
            cpu_us: cpu.as_secs_f64() * 1e6 / count as f64,
        })
    }

    /// Parses the output of [`Figures::line`].
    pub(crate) fn parse(line: &str) -> Result<Self> {
        let numbers: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
        let numbers: [f64; 4] = numbers?.try_into().ok().context("expected four numbers")?;
        let [per_second, p50_us, p99_us, cpu_us] = numbers;
        Ok(Self { per_second, p50_us, p99_us, cpu_us })
    }

    pub(crate) fn line(&self) -> String {
        format!("{} {} {} {}", self.per_second, self.p50_us, self.p99_us, self.cpu_us)
    }

    pub(crate) fn print(&self, name: &str) {
        let Self { per_second, p50_us, p99_us, cpu_us } = self;
        let (p50, p99) = (p50_us / 1e3, p99_us / 1e3);
        println!("| {name} | {per_second:.0} | {p50:.1} ms | {p99:.1} ms | {cpu_us:.0} |");
    }
}
