//! One step of a task: runs a command and prints how long it took.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// Runs `command` with its output. A non-zero exit code is an error with the name of the step.
pub(crate) fn run(name: &str, command: &mut Command) -> Result<()> {
    println!("xtask: {name} …");
    let begun = Instant::now();
    let status =
        command.status().with_context(|| format!("{name}: cannot start {:?}", command.get_program()))?;
    let seconds = begun.elapsed().as_secs_f64();
    if !status.success() {
        bail!("{name} failed after {seconds:.1} s ({status})");
    }
    println!("xtask: {name} ok, {seconds:.1} s");
    Ok(())
}

/// Whether `command` can be started and succeeds. Its output is discarded.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}
