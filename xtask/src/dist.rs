//! `cargo xtask dist`: builds a static program, and makes the packages of a release from it in `target/dist`.
//!
//! The packages depend only on the commit: files have its date, and are in the order of their paths.

mod archive;
mod check;
mod debian;
mod files;
mod image;
mod platform;
mod sbom;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use ring::digest::{SHA256, digest};

use crate::{cargo, step, workspace};
use archive::gzip;
use files::Files;
use platform::{Platform, PlatformName};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Install and start the packages too: in an empty root, in a Debian root and as a container; as root. Packages for another
    /// kind of machine are only unpacked, and their program is started in an emulator
    #[arg(long)]
    check: bool,
    /// The machines to build for
    #[arg(long, value_enum, value_delimiter = ',', default_value = "x86_64")]
    platforms: Vec<PlatformName>,
}

/// What is released.
#[derive(Clone)]
pub(crate) struct Release {
    version: String,
    commit: String,
    date: String,
    /// The time of the commit, in seconds since 1970.
    time: u64,
}

impl Release {
    fn of_head() -> Result<Self> {
        let time = git(&["log", "-1", "--format=%ct"])?;
        let changes = git(&["status", "--porcelain"])?;
        let commit = git(&["log", "-1", "--format=%h"])?;
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: if changes.is_empty() { commit } else { format!("{commit} with changes") },
            date: git(&["log", "-1", "--format=%cs"])?,
            time: time.parse().context("git log: not a time")?,
        })
    }

    #[cfg(test)]
    fn sample() -> Self {
        Self {
            version: "1.2.3".to_owned(),
            commit: "abcdef0".to_owned(),
            date: "2026-01-02".to_owned(),
            time: 1_767_312_000,
        }
    }

    /// What `hob version` prints.
    fn build(&self) -> String {
        format!("{} ({}, {})", self.version, self.commit, self.date)
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let release = Release::of_head()?;
    let folder = workspace().join("target/dist");
    fs::create_dir_all(&folder)?;
    let mut packages = vec![("install.sh".to_owned(), install_script(&release)?)];
    let mut built = Vec::new();
    for platform in options.platforms.iter().map(|name| name.platform()) {
        let files = Files::of(platform, &build(&release, platform)?)?;
        packages.extend(pack(&release, platform, &files)?);
        built.push((platform, files));
    }
    let mut sums = String::new();
    for (name, bytes) in &packages {
        fs::write(folder.join(name), bytes).with_context(|| format!("cannot write {name}"))?;
        sums += &format!("{}  {name}\n", sha256(bytes));
        println!("xtask: target/dist/{name}, {:.1} MB", bytes.len() as f64 / 1e6);
    }
    fs::write(folder.join("SHA256SUMS"), sums)?;
    if options.check {
        for (platform, files) in &built {
            check::run(&release, platform, files, &folder)?;
        }
    }
    Ok(())
}

/// The files of a platform, with their names.
fn pack(release: &Release, platform: &Platform, files: &Files) -> Result<Vec<(String, Vec<u8>)>> {
    let Platform { name, .. } = platform;
    let base = format!("hob-{}-{name}-linux", release.version);
    Ok(vec![
        (format!("{base}.tar.gz"), gzip(&files.tarball(&base)?.tar(release.time)?)?),
        (debian::name(release, platform), debian::package(release, platform, files)?),
        (format!("{base}.oci.tar"), image::image(release, platform, files)?),
        (format!("{base}.cdx.json"), sbom::sbom(release, platform)?),
    ])
}

/// The script that installs this version.
fn install_script(release: &Release) -> Result<Vec<u8>> {
    Ok(deploy("install.sh")?.replace("@VERSION@", &release.version).into_bytes())
}

/// Builds the program; returns its path.
fn build(release: &Release, platform: &Platform) -> Result<PathBuf> {
    let mut build = cargo();
    platform.prepare(&mut build)?;
    build.args(["build", "--locked", "--package", "hob", "--profile", "dist", "--target", platform.target]);
    step::run("build", build.env("HOB_BUILD", release.build()))?;
    let targets = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let program = workspace().join(targets).join(platform.target).join("dist/hob");
    let printed = output(platform.command(&program).arg("version"))?;
    ensure!(printed == format!("hob {}", release.build()), "{} prints {printed:?}", program.display());
    Ok(program)
}

/// A file in `deploy`.
fn deploy(name: &str) -> Result<String> {
    let path = workspace().join("deploy").join(name);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

fn git(arguments: &[&str]) -> Result<String> {
    output(Command::new("git").arg("-C").arg(workspace()).args(arguments))
}

/// What a program prints, without the line end.
fn output(command: &mut Command) -> Result<String> {
    let name = Path::new(command.get_program()).to_owned();
    let ended = command.output().with_context(|| format!("cannot start {}", name.display()))?;
    let text = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.success(), "{} failed ({}): {text}", name.display(), ended.status);
    Ok(String::from_utf8(ended.stdout).context("not UTF-8")?.trim_end().to_owned())
}

fn sha256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
