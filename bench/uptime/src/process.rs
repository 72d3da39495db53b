//! Child processes, and what they cost.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

/// A child that is gone when this is.
pub(crate) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// This program once more, in another role.
    pub(crate) fn own(arguments: &[&str]) -> Result<Self> {
        Self::start(Command::new(std::env::current_exe()?).args(arguments).stdout(Stdio::piped()))
    }

    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        Ok(Self(command.spawn().with_context(|| format!("cannot start {name}"))?))
    }

    /// Waits for the first line that it prints.
    pub(crate) fn first_line(&mut self) -> Result<String> {
        let stdout = self.0.stdout.take().context("a pipe")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    pub(crate) fn cpu(&self) -> Result<Duration> {
        cpu(&self.0.id().to_string())
    }
}

/// The CPU time that a process has used so far. The kernel counts in hundredths of a second.
pub(crate) fn cpu(process: &str) -> Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).context("the process is gone")?;
    // The name, in parentheses, may hold blanks; user and system time are the 12th and 13th words after it.
    let after = text.rsplit_once(')').context("a strange /proc")?.1;
    let words: Vec<&str> = after.split_whitespace().collect();
    let ticks = words[11].parse::<u64>()? + words[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}
