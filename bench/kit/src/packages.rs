//! Peers from npm, PyPI and cargo, of fixed versions, installed once under `target/bench`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::output;

/// A `node_modules` with these packages (`name@version`), to be given to `node` as `NODE_PATH`.
pub fn node_modules(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let folder = installed(name, packages, |folder| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"]);
        output(npm.arg(folder).args(packages))
    })?;
    Ok(folder.join("node_modules"))
}

/// A Python with these packages (`name==version`).
pub fn python(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let folder = installed(name, packages, |folder| {
        output(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        let mut pip = Command::new(folder.join("bin/pip"));
        output(pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(packages))
    })?;
    Ok(folder.join("bin/python"))
}

/// The program of the cargo package of that name.
pub fn installed_by_cargo(name: &str, version: &str) -> Result<PathBuf> {
    let package = format!("{name}@{version}");
    let folder = installed(name, &[&package], |folder| {
        let mut cargo = Command::new("cargo");
        output(cargo.args(["install", "--quiet", "--locked", "--root"]).arg(folder).arg(&package))
    })?;
    Ok(folder.join("bin").join(name))
}

/// Fills a folder with `install`, unless it has been filled with the same packages before.
fn installed(name: &str, packages: &[&str], install: impl Fn(&Path) -> Result<String>) -> Result<PathBuf> {
    let target =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("a workspace")?.join("target");
    let folder = target.join("bench").join(name);
    let marker = folder.join("installed");
    let wanted = packages.join("\n");
    if fs::read_to_string(&marker).is_ok_and(|there| there == wanted) {
        return Ok(folder);
    }
    fs::create_dir_all(&folder)?;
    install(&folder).with_context(|| format!("{} cannot be installed", packages.join(", ")))?;
    fs::write(marker, wanted)?;
    Ok(folder)
}
