//! The `hob` command.

mod cli;
mod config;
mod database;
mod doctor;
mod exit;
mod load;
mod pages;
mod pipeline;
mod schema;
mod serve;
mod services;
mod token;
mod uptime;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use cli::{Cli, Command};
use exit::Exit;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let file = cli.config.as_deref();
    let outcome = match cli.command {
        Command::Serve(options) => serve::run(&options, file).map(|()| Exit::Clean),
        Command::Config { command } => config::run(&command, file),
        Command::Doctor => doctor::run(file),
        Command::Token { command } => token::run(&command, file),
        Command::Uptime { command } => uptime::run(&command, file),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "hob", &mut std::io::stdout());
            Ok(Exit::Clean)
        }
        Command::Pipeline { command } => pipeline::run(&command, file),
        Command::Database { command } => database::run(&command, file),
        Command::Load { command } => load::run(&command, file),
        Command::Schema { command } => schema::run(&command),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

/// Prints an error as one line.
fn report(error: &anyhow::Error) {
    // If standard error is closed, the exit code still reports the failure.
    let _ = writeln!(std::io::stderr(), "hob: {error:#}");
}
