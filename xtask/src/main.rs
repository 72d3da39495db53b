//! Development tasks: `cargo xtask test` sets up a machine and runs every test.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod advisories;
mod chaos;
mod clients;
mod dist;
mod fuzz;
mod lock;
mod package;
mod screenshots;
mod setup;
mod step;
mod test;
mod tidy;
mod upgrade;
mod versions;

use std::path::Path;
use std::process::{Command, ExitCode};

use clap::Parser;

/// The root of the workspace.
fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in a folder of the workspace")
}

/// The running cargo, in the root of the workspace.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace());
    // Cargo sets these for the package of this program. Some build scripts run again when they change, so that each change between
    // cargo and cargo xtask would compile most crates again.
    let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in variables.filter(|name| name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_"))
    {
        command.env_remove(name);
    }
    command
}

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Development tasks of Hob")]
enum Task {
    /// Install what the tests need, run tidy, check the format, lint, and run every test
    Test(test::Options),
    /// Install what the tests need
    Setup,
    /// Check dependencies between crates, their licences and advisories, file lengths, keys, contract ids and links
    Tidy,
    /// Write the pictures in docs/images, of the demo in a real browser
    Screenshots,
    /// Search for inputs that break a parser
    Fuzz(fuzz::Options),
    /// Inject faults into three nodes under traffic, and check what Hob guarantees
    Chaos(chaos::Options),
    /// Run tests on other versions of Redis, Valkey and PostgreSQL
    Versions(versions::Options),
    /// Replace nodes of the last release by nodes of this version, under traffic
    Upgrade(upgrade::Options),
    /// Build the packages of a release in target/dist: tarball, Debian package, container image, checksums, list of crates
    Dist(dist::Options),
    /// Save which versions of crates have known vulnerabilities, for `tidy`
    Advisories(advisories::Options),
}

fn main() -> ExitCode {
    let done = match Task::parse() {
        Task::Test(options) => test::run(&options),
        Task::Setup => setup::run(setup::Extent::Whole).map(drop),
        Task::Tidy => tidy::run(),
        Task::Screenshots => screenshots::run(),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Chaos(options) => chaos::run(&options),
        Task::Versions(options) => versions::run(&options),
        Task::Upgrade(options) => upgrade::run(&options),
        Task::Dist(options) => dist::run(&options),
        Task::Advisories(options) => advisories::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
