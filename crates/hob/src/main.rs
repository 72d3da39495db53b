//! The `hob` command.

mod cli;
mod config;
mod database;
mod doctor;
mod exit;
mod init;
mod load;
mod pages;
mod pipeline;
mod remote;
mod schema;
mod serve;
mod services;
mod test_redis;
mod token;
mod uptime;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory, Parser};

use cli::{Cli, Command};
use exit::Exit;
use hob_service::config::ConfigError;

/// Chosen by measurement (docs/benchmarks/chat.md). The allocator of musl serves one thread at a time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let file = cli.config.as_deref();
    let outcome = match cli.command {
        Command::Serve(options) => serve::run(&options, file).map(|()| Exit::Clean),
        Command::Init(options) => init::run(&options, file),
        Command::Config { command } => config::run(&command, file),
        Command::Doctor => doctor::run(file),
        Command::Login(arguments) => remote::login::log_in(&arguments),
        Command::Logout => remote::login::log_out(),
        Command::Token { command } => token::run(&command, file),
        Command::Uptime { command } => uptime::run(&command, file),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "hob", &mut std::io::stdout());
            Ok(Exit::Clean)
        }
        Command::Man { folder } => man(&folder),
        Command::Version => version(),
        Command::Pipeline { command } => pipeline::run(&command, file),
        Command::Database { command } => database::run(&command, file),
        Command::Load { command } => load::run(&command, file),
        Command::Schema { command } => schema::run(&command),
        Command::TestRedis(options) => test_redis::run(&options),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "output of a command")]
fn version() -> anyhow::Result<Exit> {
    println!("hob {}", cli::VERSION);
    Ok(Exit::Clean)
}

/// Writes one page for each command.
fn man(folder: &Path) -> anyhow::Result<Exit> {
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
        .with_context(|| format!("cannot write the manual pages into {}", folder.display()))?;
    Ok(Exit::Clean)
}

/// Prints an error as one line, and the mistakes of a configuration as one line each.
fn report(error: &anyhow::Error) {
    let mut stderr = std::io::stderr();
    // If standard error is closed, the exit code still reports the failure.
    match error.downcast_ref::<ConfigError>() {
        Some(mistakes) => mistakes.each().iter().for_each(|mistake| _ = writeln!(stderr, "hob: {mistake}")),
        None => _ = writeln!(stderr, "hob: {}", in_one_line(error)),
    }
}

/// An error with its causes. Many errors name their cause in their own message; it is not repeated.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}
