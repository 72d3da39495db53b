//! One step of a chore: a command, announced on a line with the time it took.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// Runs `command`, letting its output through; an exit code other than zero is an error naming the step.
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

/// Whether `command` can be started and succeeds, its output thrown away.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}
