//! The project's chores: `cargo xtask test` makes a bare machine ready and runs every test.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a chore talks to the person who started it")]

mod clients;
mod setup;
mod step;
mod test;
mod tidy;

use std::path::Path;
use std::process::{Command, ExitCode};

use clap::Parser;

/// The root of the workspace.
fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lives in a folder of the workspace")
}

/// The cargo that runs this, at the root of the workspace.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace());
    command
}

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The project's chores")]
enum Chore {
    /// Install what the tests need, then check the format, lint, and run every test
    Test(test::Options),
    /// Only install what the tests need
    Setup,
    /// Check the edges between crates, the length of files, keys, contract ids and links
    Tidy,
}

fn main() -> ExitCode {
    let done = match Chore::parse() {
        Chore::Test(options) => test::run(&options),
        Chore::Setup => setup::run(setup::Extent::Whole).map(drop),
        Chore::Tidy => tidy::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
