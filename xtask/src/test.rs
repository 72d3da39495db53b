//! `cargo xtask test`: set-up, tidy, format, lints, tests, doc tests, packages, five minutes of faults, and with `--full` the
//! documentation, an upgrade from the last release, other versions of the servers and fuzzing.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{cargo, chaos, fuzz, package, setup, step, tidy, upgrade, versions, workspace};

/// The modules that `--quick` skips. `cargo nextest` and `cargo test` both match them in the path of a test.
const SLOW_MODULES: &[&str] = &["slow::", "browser::"];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Skip tests in modules named `slow` and `browser`, and the run with faults
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Run fuzz and stress tests with their full budget, upgrade from the last release, test other versions of the servers,
    /// and fuzz every parser for ten minutes
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
    }
    let lints = Lints::find()?;
    let mut tests = tests(options);
    clients.export(&mut tests);
    // Also without a build before, so that nothing is compiled twice.
    lints.apply(&mut tests);
    let mut doc_tests = cargo();
    doc_tests.args(["test", "--doc", "--workspace"]);
    lints.apply(&mut doc_tests);
    if whole {
        // Targets that the test runner does not build: benchmarks and examples without tests.
        let mut build = cargo();
        build.args(["build", "--workspace", "--all-targets"]);
        lints.apply(&mut build);
        step::run("build and lints", &mut build)?;
    }
    step::run("tests", &mut tests)?;
    if whole {
        step::run("doc tests", &mut doc_tests)?;
        example()?;
        package::run(if options.full { package::Extent::Compiled } else { package::Extent::Files })?;
        if !options.quick {
            chaos::run_built(&chaos::Options::of_test())?;
        }
        if options.full {
            documentation()?;
            upgrade::run(&upgrade::Options::full())?;
            versions::run(&versions::Options::full())?;
            fuzz::run(&fuzz::Options::full())?;
        }
    }
    println!("xtask: all checks passed");
    Ok(())
}

/// Clippy as the compiler of the workspace, so that code is linted while it is compiled for the tests. `cargo clippy`
/// would compile everything a second time.
pub(crate) struct Lints {
    driver: PathBuf,
}

impl Lints {
    pub(crate) fn find() -> Result<Self> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let sysroot =
            Command::new(rustc).args(["--print", "sysroot"]).output().context("cannot run rustc")?;
        let sysroot = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim());
        let driver = sysroot.join("bin/clippy-driver");
        anyhow::ensure!(driver.exists(), "clippy is not installed; run: rustup component add clippy");
        Ok(Self { driver })
    }

    pub(crate) fn apply(&self, command: &mut Command) {
        command.env("RUSTC_WORKSPACE_WRAPPER", &self.driver);
        // The separator is the one that `cargo clippy` uses between arguments.
        command.env("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__");
    }
}

/// Builds the documentation of all crates; a warning, such as a broken link, is an error.
fn documentation() -> Result<()> {
    let mut doc = cargo();
    doc.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-Dwarnings");
    step::run("documentation", &mut doc)
}

/// Builds a program outside of the workspace, to check that the crates can be used from one, with the embedded engine
/// and without. It uses the Cargo.lock of the workspace, in which `hob-store` always has the engine.
fn example() -> Result<()> {
    let folder = workspace().join("examples/limiter");
    let lock = folder.join("Cargo.lock");
    fs::copy(workspace().join("Cargo.lock"), lock).context("cannot copy Cargo.lock")?;
    let on_example = |task: &str| {
        let mut command = cargo();
        command
            .args([task, "--target-dir", "target/examples", "--manifest-path"])
            .arg(folder.join("Cargo.toml"))
            // Built once and not debugged: incremental data and debug information would only take space on the disk.
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "false");
        command
    };
    step::run("example", &mut on_example("build"))?;
    step::run("example without the engine", on_example("build").arg("--no-default-features"))?;
    let mut without_address = on_example("run");
    without_address.args(["--quiet", "--no-default-features"]);
    for variable in ["HOB_REDIS_URL", "REDIS_URL", "REDIS_HOST", "REDIS_PORT", "REDIS_PASSWORD"] {
        without_address.env_remove(variable);
    }
    let ended = without_address.output().context("cannot run the example")?;
    let text = String::from_utf8_lossy(&ended.stderr);
    anyhow::ensure!(
        !ended.status.success() && text.contains("feature `embedded`"),
        "without the engine, the example must fail and name the missing feature: {text}"
    );
    Ok(())
}

/// The command that runs the tests, with nextest if it is installed.
fn tests(options: &Options) -> Command {
    let mut command = cargo();
    if step::succeeds(cargo().args(["nextest", "--version"])) {
        command.args(["nextest", "run"]);
        if options.full {
            command.args(["--profile", "full"]);
        }
        // Most tests wait for servers and timers, not for a processor.
        if std::env::var_os("NEXTEST_TEST_THREADS").is_none() {
            let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            command.env("NEXTEST_TEST_THREADS", cores.saturating_mul(2).to_string());
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
