//! Installs peers from npm, PyPI and cargo once, in fixed versions, under `target/bench`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::output;

/// Returns a `node_modules` folder with these packages (`name@version`), for `NODE_PATH`.
pub fn node_modules(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let folder = installed(name, packages, |folder| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"]);
        output(npm.arg(folder).args(packages))
    })?;
    Ok(folder.join("node_modules"))
}

/// Returns a Python interpreter with these packages (`name==version`).
pub fn python(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let folder = installed(name, packages, |folder| {
        output(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        let mut pip = Command::new(folder.join("bin/pip"));
        output(pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(packages))
    })?;
    Ok(folder.join("bin/python"))
}

/// Returns the binary of a cargo package.
pub fn installed_by_cargo(name: &str, version: &str) -> Result<PathBuf> {
    let package = format!("{name}@{version}");
    let folder = installed(name, &[&package], |folder| {
        let mut cargo = Command::new("cargo");
        output(cargo.args(["install", "--quiet", "--locked", "--root"]).arg(folder).arg(&package))
    })?;
    Ok(folder.join("bin").join(name))
}

/// Builds a package that is not a member of the workspace, and returns its binary.
pub fn built_by_cargo(name: &str, package: &str) -> Result<PathBuf> {
    let target = bench_folder()?.join(name);
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--release", "--manifest-path"]);
    output(cargo.arg(Path::new(package).join("Cargo.toml")).arg("--target-dir").arg(&target))?;
    Ok(target.join("release").join(name))
}

/// Runs `install` in a folder, unless the folder already contains the same packages.
fn installed(name: &str, packages: &[&str], install: impl Fn(&Path) -> Result<String>) -> Result<PathBuf> {
    let folder = bench_folder()?.join(name);
    let marker = folder.join("installed");
    let required = packages.join("\n");
    if fs::read_to_string(&marker).is_ok_and(|existing| existing == required) {
        return Ok(folder);
    }
    fs::create_dir_all(&folder)?;
    install(&folder).with_context(|| format!("cannot install {}", packages.join(", ")))?;
    fs::write(marker, required)?;
    Ok(folder)
}

fn bench_folder() -> Result<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("no workspace")?;
    Ok(workspace.join("target/bench"))
}
