//! `cargo xtask test`: set-up, tidy, format, lints, tests, doc tests.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{cargo, setup, step, tidy, workspace};

/// The modules that `--quick` skips. `cargo nextest` and `cargo test` both match them in the path of a test.
const SLOW_MODULES: &[&str] = &["slow::", "browser::"];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Skip tests in modules named `slow` and `browser`
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Run fuzz and stress tests with their full budget
    #[arg(long)]
    full: bool,
    /// Run only these tests, without tidy, format, lints and doc tests: names, or options of the test runner
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
    println!("xtask: all checks passed");
    Ok(())
}

/// Builds a program outside of the workspace, to check that the crates can be used from one. It uses the Cargo.lock of
/// the workspace.
fn build_example() -> Result<()> {
    let folder = workspace().join("examples/limiter");
    let lock = folder.join("Cargo.lock");
    fs::copy(workspace().join("Cargo.lock"), lock).context("cannot copy Cargo.lock")?;
    let mut build = cargo();
    build
        .args(["build", "--target-dir", "target/examples", "--manifest-path"])
        .arg(folder.join("Cargo.toml"));
    step::run("example", &mut build)
}

/// The command that runs the tests, with nextest if it is installed.
fn tests(options: &Options) -> Command {
    let mut command = cargo();
    if step::succeeds(cargo().args(["nextest", "--version"])) {
        command.args(["nextest", "run"]);
        if options.full {
            command.args(["--profile", "full"]);
        }
    } else {
        // Doc tests are another step.
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
