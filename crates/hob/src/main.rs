//! The `hob` command: reads what is asked for, composes the systems, reports what went wrong in one line.

mod cli;
mod http;
mod serve;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Serve(options) => serve::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

/// One line: what could not be done, and why.
#[expect(clippy::print_stderr, reason = "this is where a command tells its user")]
fn report(error: &anyhow::Error) {
    eprintln!("hob: {error:#}");
}
