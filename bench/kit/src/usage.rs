//! What the kernel says of a process.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// As Linux counts CPU time in `/proc`: hundredths of a second.
const TICK: Duration = Duration::from_millis(10);

/// Total CPU time that some processes have used so far.
#[derive(Clone, Debug)]
pub struct Usage {
    processes: Vec<u32>,
    before: Duration,
}

impl Usage {
    /// Starts to count.
    pub fn start(processes: Vec<u32>) -> Result<Self> {
        let before = together(&processes)?;
        Ok(Self { processes, before })
    }

    /// What they have used since then.
    pub fn so_far(&self) -> Result<Duration> {
        Ok(together(&self.processes)? - self.before)
    }

    /// What they have used since then for each of `count` things, in microseconds.
    pub fn us_each(&self, count: u64) -> Result<f64> {
        Ok(self.so_far()?.as_secs_f64() * 1e6 / count.max(1) as f64)
    }
}

fn together(processes: &[u32]) -> Result<Duration> {
    processes.iter().map(|process| cpu(*process)).sum()
}

/// CPU time that a process has used so far, in user and in system mode.
pub fn cpu(process: u32) -> Result<Duration> {
    ticks(&process.to_string(), [11, 12])
}

/// CPU time of all children of this process that have ended.
pub fn cpu_of_ended_children() -> Result<Duration> {
    ticks("self", [13, 14])
}

fn ticks(process: &str, words: [usize; 2]) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).context("the process is gone")?;
    // The name, in parentheses, may hold blanks; what follows it does not.
    let after = stat.rsplit_once(')').context("a strange /proc")?.1;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let mut ticks = 0;
    for word in words {
        ticks += fields.get(word).context("a strange /proc")?.parse::<u32>()?;
    }
    Ok(TICK * ticks)
}

/// Resident memory, in bytes.
pub fn resident(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).context("no number")?.parse::<u64>()? * 1024)
}
