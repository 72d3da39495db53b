//! `cargo xtask fuzz`: searches for inputs that break a parser, with libFuzzer on the stable compiler.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{cargo, step, workspace};

/// What libFuzzer needs of the compiler, as cargo-fuzz sets it. Sanitizers would need a nightly compiler; the crates of
/// Hob have no unsafe code.
const FLAGS: &[&str] = &[
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// What `cargo xtask test --full` spends on each target.
pub(crate) const FULL_SECONDS: u32 = 600;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Targets, by their names in `fuzz/src/bin`; without names, all of them
    targets: Vec<String>,
}

impl Options {
    pub(crate) fn full() -> Self {
        Self { seconds: FULL_SECONDS, targets: Vec::new() }
    }
}

/// Builds the targets and runs one after the other. Inputs that reach new code are kept in `fuzz/corpus`, and one that breaks
/// a target is written to `fuzz/artifacts`.
pub(crate) fn run(options: &Options) -> Result<()> {
    let folder = workspace().join("fuzz");
    let known = targets()?;
    for name in &options.targets {
        ensure!(known.contains(name), "unknown target {name:?}; there are: {}", known.join(", "));
    }
    fs::copy(workspace().join("Cargo.lock"), folder.join("Cargo.lock")).context("cannot copy Cargo.lock")?;
    let host = host()?;
    let mut build = cargo();
    // With an explicit platform the flags do not apply to build scripts and macros.
    build.args(["build", "--release", "--target-dir", "target/fuzz", "--target", &host, "--manifest-path"]);
    build.arg(folder.join("Cargo.toml")).env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"));
    step::run("fuzz targets", &mut build)?;
    for name in known.iter().filter(|name| options.targets.is_empty() || options.targets.contains(name)) {
        let [corpus, artifacts] = ["corpus", "artifacts"].map(|kind| folder.join(kind).join(name));
        fs::create_dir_all(&corpus).with_context(|| format!("cannot create {}", corpus.display()))?;
        fs::create_dir_all(&artifacts).with_context(|| format!("cannot create {}", artifacts.display()))?;
        let mut target = Command::new(workspace().join(format!("target/fuzz/{host}/release/{name}")));
        target.current_dir(&folder);
        target.arg(format!("-max_total_time={}", options.seconds));
        target.args([
            "-timeout=10",
            "-rss_limit_mb=2048",
            "-print_final_stats=1",
            "-verbosity=0",
            "-print_funcs=0",
        ]);
        target.arg(format!("-artifact_prefix={}/", artifacts.display()));
        // New inputs go to the first folder.
        target.arg(corpus).arg(folder.join("seeds").join(name));
        step::run(&format!("fuzz {name}"), &mut target)?;
    }
    Ok(())
}

fn targets() -> Result<Vec<String>> {
    let listed = fs::read_dir(workspace().join("fuzz/src/bin")).context("cannot read fuzz/src/bin")?;
    let mut names = Vec::new();
    for entry in listed {
        let path = entry?.path();
        names.extend(path.file_stem().and_then(|name| name.to_str()).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// The platform of the compiler.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("-vV").output().context("cannot run rustc")?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV does not name its host")
}
