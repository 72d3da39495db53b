//! `cargo xtask chaos`: builds Hob and the harness, and runs it. See `docs/chaos.md`.

use std::process::Command;

use anyhow::Result;

use crate::test::Lints;
use crate::{cargo, step, workspace};

/// What `cargo xtask test` runs: always the same faults.
const SEED: u64 = 20;
const MINUTES: u32 = 5;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long to run; no round of faults and checks begins after that
    #[arg(long, default_value_t = MINUTES)]
    minutes: u32,
    /// The seed of the faults and the traffic; random if not given
    #[arg(long)]
    seed: Option<u64>,
    /// How Redis is set up; the seed decides if not given
    #[arg(long, value_parser = ["cluster", "sentinel"])]
    setup: Option<String>,
    /// Inject no faults, and record the use of memory, open files, keys and rows of a release build
    #[arg(long)]
    soak: bool,
    /// How many times the usual traffic the gateway and chat get
    #[arg(long, default_value_t = 1)]
    traffic: u32,
}

impl Options {
    pub(crate) fn of_test() -> Self {
        Self { minutes: MINUTES, seed: Some(SEED), setup: None, soak: false, traffic: 1 }
    }
}

/// How the nodes and the harness are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Build {
    /// As for the tests.
    Debug,
    /// What is measured must not be the cost of a debug build.
    Release,
}

impl Build {
    fn folder(self) -> &'static str {
        match self {
            Self::Debug => "target/debug",
            Self::Release => "target/release",
        }
    }
}

/// Builds the nodes and the harness, and runs it.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut build = cargo();
    if options.soak {
        build.args(["build", "--release", "--package", "hob", "--package", "hob-chaos"]);
        step::run("release build", &mut build)?;
        return run_harness(options, Build::Release);
    }
    build.args(["build", "--workspace", "--all-targets"]);
    Lints::find()?.apply(&mut build);
    step::run("build", &mut build)?;
    run_built(options)
}

/// Runs the harness that was built with the tests.
pub(crate) fn run_built(options: &Options) -> Result<()> {
    run_harness(options, Build::Debug)
}

fn run_harness(options: &Options, build: Build) -> Result<()> {
    let folder = workspace().join(build.folder());
    let mut chaos = Command::new(folder.join("hob-chaos"));
    chaos.current_dir(workspace()).args(["--minutes", &options.minutes.to_string()]);
    chaos.arg("--hob").arg(folder.join("hob"));
    if let Some(seed) = options.seed {
        chaos.args(["--seed", &seed.to_string()]);
    }
    if let Some(setup) = &options.setup {
        chaos.args(["--setup", setup]);
    }
    if options.soak {
        chaos.arg("--soak");
    }
    chaos.args(["--traffic", &options.traffic.to_string()]);
    step::run("chaos", &mut chaos)
}
