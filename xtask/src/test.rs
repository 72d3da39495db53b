//! `cargo xtask test`: set-up, tidy, format, lints, tests, doc tests.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{cargo, setup, step, tidy, workspace};

/// What marks the suites that `--quick` leaves out: the names of modules, which both `cargo nextest` and
/// `cargo test` find in a test's path.
const SLOW_MODULES: &[&str] = &["slow::", "browser::"];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Leave out the suites in modules named `slow` and `browser`
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Give the fuzzing and stress suites their full budget
    #[arg(long)]
    full: bool,
    /// Run only these tests, skipping format, lints and doc tests: names, or any option of the test runner
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    filters: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let extent = if options.quick { setup::Extent::WithoutBrowser } else { setup::Extent::Whole };
    let clients = setup::run(extent)?;
    let whole = options.filters.is_empty();
    if whole {
        tidy::run().context("tidy")?;
        step::run("format", cargo().args(["fmt", "--all", "--check"]))?;
        step::run("lints", cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    }
    let mut tests = tests(options);
    clients.export(&mut tests);
    step::run("tests", &mut tests)?;
    if whole {
        step::run("doc tests", cargo().args(["test", "--doc", "--workspace"]))?;
        build_example()?;
    }
    println!("xtask: all green");
    Ok(())
}

/// A program outside of the workspace shows that the crates can be used from one. It takes the versions that the
/// workspace was tested with.
fn build_example() -> Result<()> {
    let folder = workspace().join("examples/limiter");
    let lock = folder.join("Cargo.lock");
    fs::copy(workspace().join("Cargo.lock"), lock).context("could not copy Cargo.lock")?;
    let mut build = cargo();
    build
        .args(["build", "--target-dir", "target/examples", "--manifest-path"])
        .arg(folder.join("Cargo.toml"));
    step::run("example", &mut build)
}

/// The command that runs the tests, with nextest where it is installed.
fn tests(options: &Options) -> Command {
    let mut command = cargo();
    if step::succeeds(cargo().args(["nextest", "--version"])) {
        command.args(["nextest", "run"]);
        if options.full {
            command.args(["--profile", "full"]);
        }
    } else {
        // Doc tests have a step of their own.
        command.args(["test", "--no-fail-fast", "--lib", "--bins", "--tests", "--examples"]);
    }
    if options.full {
        command.env("HOB_TEST_BUDGET", "full");
    }
    if !options.filters.iter().any(|filter| filter == "-p" || filter.starts_with("--package")) {
        command.arg("--workspace");
    }
    command.args(&options.filters);
    if options.quick {
        if !options.filters.iter().any(|filter| filter == "--") {
            command.arg("--");
        }
        command.args(SLOW_MODULES.iter().flat_map(|module| ["--skip", module]));
    }
    command
}
