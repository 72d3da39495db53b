//! `cargo xtask dist --check`: installs and starts each package as a user would.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::files::Files;
use super::platform::Platform;
use super::{Release, debian};
use crate::{setup, step, workspace};

/// The Debian release that the package is installed in.
const DEBIAN: &str = "bookworm";

pub(crate) fn run(release: &Release, platform: &Platform, files: &Files, folder: &Path) -> Result<()> {
    let package = |name: String| folder.join(name);
    if !platform.is_native() {
        let name = format!("the packages for {}, in an emulator", platform.name);
        return step::run(
            &name,
            script(include_str!("check_emulated.sh"))
                .arg(platform.emulator)
                .arg(package(format!("hob-{}-{}-linux.tar.gz", release.version, platform.name)))
                .arg(package(debian::name(release, platform)))
                .arg(platform.debian),
        );
    }
    setup::containers()?;
    step::run("the tarball, in an empty root", script(include_str!("check_tarball.sh")).arg(folder))?;
    let newer = Release { version: format!("{}+newer", release.version), ..release.clone() };
    let scratch = workspace().join("target/testkit");
    fs::create_dir_all(&scratch)?;
    let newer_package = scratch.join(debian::name(&newer, platform));
    fs::write(&newer_package, debian::package(&newer, platform, files)?)
        .with_context(|| format!("cannot write {}", newer_package.display()))?;
    step::run(
        "the Debian package, in a container",
        script(include_str!("check_debian.sh"))
            .arg(debian_root()?)
            .arg(package(debian::name(release, platform)))
            .arg(newer_package),
    )?;
    step::run(
        "the image, as a container",
        script(include_str!("check_image.sh"))
            .arg(package(format!("hob-{}-{}-linux.oci.tar", release.version, platform.name)))
            .arg(&release.version),
    )
}

fn script(text: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", text, "check"]);
    command
}

/// A small Debian system with systemd, which is made once.
fn debian_root() -> Result<std::path::PathBuf> {
    let root = workspace().join("target/testkit/debian.tar");
    if !root.exists() {
        let partial = root.with_extension("partial.tar");
        let mut make = Command::new("mmdebstrap");
        make.args([
            "--quiet",
            "--variant=minbase",
            "--include=systemd,init-system-helpers,passwd,procps",
            DEBIAN,
        ]);
        step::run("mmdebstrap", make.arg(&partial))?;
        fs::rename(&partial, &root)?;
    }
    Ok(root)
}
