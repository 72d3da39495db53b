//! CPU time and memory of a process, read from `/proc`.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// The unit of CPU time in `/proc`: a hundredth of a second.
const TICK: Duration = Duration::from_millis(10);

/// Measures the total CPU time of some processes.
#[derive(Clone, Debug)]
pub struct Usage {
    processes: Vec<u32>,
    before: Duration,
}

impl Usage {
    /// Starts the measurement.
    pub fn start(processes: Vec<u32>) -> Result<Self> {
        let before = total_cpu(&processes)?;
        Ok(Self { processes, before })
    }

    /// The CPU time since the start.
    pub fn so_far(&self) -> Result<Duration> {
        Ok(total_cpu(&self.processes)? - self.before)
    }

    /// The CPU time since the start divided by `count`, in microseconds.
    pub fn us_each(&self, count: u64) -> Result<f64> {
        Ok(self.so_far()?.as_secs_f64() * 1e6 / count.max(1) as f64)
    }
}

fn total_cpu(processes: &[u32]) -> Result<Duration> {
    processes.iter().map(|process| cpu(*process)).sum()
}

/// CPU time of a process since it started, in user and system mode.
pub fn cpu(process: u32) -> Result<Duration> {
    ticks(&process.to_string(), [11, 12])
}

/// CPU time of all children of this process that have ended.
pub fn cpu_of_ended_children() -> Result<Duration> {
    ticks("self", [13, 14])
}

fn ticks(process: &str, indices: [usize; 2]) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).context("the process has exited")?;
    // Only the name, in parentheses, may contain spaces.
    let after = stat.rsplit_once(')').context("unexpected format of /proc/PID/stat")?.1;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let mut ticks = 0;
    for index in indices {
        ticks += fields.get(index).context("unexpected format of /proc/PID/stat")?.parse::<u32>()?;
    }
    Ok(TICK * ticks)
}

/// Resident memory, in bytes.
pub fn resident(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).context("no number")?.parse::<u64>()? * 1024)
}
