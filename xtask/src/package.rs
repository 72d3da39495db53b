//! Packages the crates that can be published, to check that everything they need is in them.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::{cargo, step};

/// How much of the packages is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Their files and dependencies, in a few seconds.
    Files,
    /// Each is also compiled from its package.
    Compiled,
}

/// The part of `cargo metadata` that is used.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    /// The registries that it may be published to; `None` if all.
    publish: Option<Vec<String>>,
}

pub(crate) fn run(extent: Extent) -> Result<()> {
    let mut package = cargo();
    package.args(["package", "--quiet", "--allow-dirty"]);
    for name in published()? {
        package.args(["--package", &name]);
    }
    if extent == Extent::Files {
        package.args(["--no-verify", "--offline"]);
    }
    step::run("packages", &mut package)
}

/// The names of the crates that can be published.
fn published() -> Result<Vec<String>> {
    let mut metadata = cargo();
    metadata.args(["metadata", "--format-version", "1", "--no-deps"]);
    let output = metadata.output().context("cannot run cargo metadata")?;
    ensure!(
        output.status.success(),
        "cargo metadata failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let published = metadata.packages.into_iter().filter(|package| package.publish.is_none());
    Ok(published.map(|package| package.name).collect())
}
