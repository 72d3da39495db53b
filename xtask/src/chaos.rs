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
    /// How long to run: a round of faults and checks takes about a minute
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

/// Builds everything in the same way as the tests, and then runs the harness.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut build = cargo();
    build.args(["build", "--workspace", "--all-targets"]);
    Lints::find()?.apply(&mut build);
    step::run("build", &mut build)?;
    if options.soak {
        step::run("release build", cargo().args(["build", "--release", "--package", "hob"]))?;
    }
    run_built(options)
}

/// Runs the harness that is already built.
pub(crate) fn run_built(options: &Options) -> Result<()> {
    let mut chaos = Command::new(workspace().join("target/debug/hob-chaos"));
    chaos.current_dir(workspace()).args(["--minutes", &options.minutes.to_string()]);
    if let Some(seed) = options.seed {
        chaos.args(["--seed", &seed.to_string()]);
    }
    if let Some(setup) = &options.setup {
        chaos.args(["--setup", setup]);
    }
    if options.soak {
        chaos.args(["--soak", "--hob", "target/release/hob"]);
    }
    chaos.args(["--traffic", &options.traffic.to_string()]);
    step::run("chaos", &mut chaos)
}
