//! `cargo xtask upgrade`: builds the last release from its commit, and replaces its nodes by nodes of this version under
//! traffic.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::test::Lints;
use crate::{cargo, setup, step, workspace};

/// The last commit of version 0.1, before the newest migration. Without a tag, the commit is the release.
const LAST_RELEASE: &str = "60953d61659b018e0696c8899955ff0dccaa680b";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Another commit to upgrade from
    #[arg(long, value_name = "COMMIT", default_value = LAST_RELEASE)]
    from: String,
}

impl Options {
    pub(crate) fn full() -> Self {
        Self { from: LAST_RELEASE.to_owned() }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let (clients, lints) = (setup::run(setup::Extent::WithoutBrowser)?, Lints::find()?);
    let program = build(&options.from)?;
    let mut tests = cargo();
    tests.args(["nextest", "run", "--workspace", "--run-ignored", "only"]);
    tests.args(["-E", "package(hob) & test(/^upgrade::/)"]);
    // As in `cargo xtask test`, so that nothing is compiled again.
    lints.apply(&mut tests);
    clients.export(&mut tests);
    tests.env("HOB_LAST_RELEASE", program);
    step::run("upgrade", &mut tests)
}

/// Builds a commit in its own folder, and returns the program.
fn build(commit: &str) -> Result<PathBuf> {
    let git = || {
        let mut git = Command::new("git");
        git.current_dir(workspace());
        git
    };
    let known = step::succeeds(git().args(["cat-file", "-e", &format!("{commit}^{{commit}}")]));
    ensure!(known, "commit {commit} is not in this clone; fetch the whole history: git fetch --unshallow");
    let folder = workspace().join("target/upgrade");
    let (source, target) = (folder.join("source"), folder.join("target"));
    if !source.join("Cargo.toml").exists() {
        // The record of a folder that was deleted.
        step::run("git worktree prune", git().args(["worktree", "prune"]))?;
        let mut add = git();
        add.args(["worktree", "add", "--force", "--detach"]).arg(&source).arg(commit);
        step::run("git worktree add", &mut add)?;
    }
    let mut checkout = git();
    checkout.current_dir(&source).args(["checkout", "--quiet", "--detach", commit]);
    step::run("git checkout", &mut checkout)?;
    let mut build = cargo();
    build.current_dir(&source).args(["build", "--locked", "-p", "hob", "--target-dir"]).arg(&target);
    // This program was started by cargo, which sets variables for its own package.
    build.env_remove("RUSTC_WORKSPACE_WRAPPER").env_remove("CARGO_TARGET_DIR");
    step::run("build of the last release", &mut build)?;
    target.join("debug/hob").canonicalize().context("the last release was not built")
}
