//! The kinds of machines that there are packages for, and how a program for them is built and started here.

use std::env::consts::ARCH;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::output;
use crate::{setup, step, workspace};

/// The name of a platform on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PlatformName {
    #[value(name = "x86_64")]
    X86_64,
    Aarch64,
}

/// A kind of machine.
pub(crate) struct Platform {
    pub(crate) target: &'static str,
    /// Its name in the files of a release, and for `uname -m`.
    pub(crate) name: &'static str,
    pub(crate) debian: &'static str,
    /// Its name in an image.
    pub(crate) image: &'static str,
    /// Debian's compiler for it, which supports only the GNU C library.
    gcc: &'static str,
    /// What runs its programs on other machines.
    pub(crate) emulator: &'static str,
}

pub(crate) const X86_64: Platform = Platform {
    target: "x86_64-unknown-linux-musl",
    name: "x86_64",
    debian: "amd64",
    image: "amd64",
    gcc: "x86_64-linux-gnu-gcc",
    emulator: "qemu-x86_64-static",
};

pub(crate) const AARCH64: Platform = Platform {
    target: "aarch64-unknown-linux-musl",
    name: "aarch64",
    debian: "arm64",
    image: "arm64",
    gcc: "aarch64-linux-gnu-gcc",
    emulator: "qemu-aarch64-static",
};

impl PlatformName {
    pub(crate) fn platform(self) -> &'static Platform {
        match self {
            Self::X86_64 => &X86_64,
            Self::Aarch64 => &AARCH64,
        }
    }
}

impl Platform {
    /// Whether this machine runs its programs without an emulator.
    pub(crate) fn is_native(&self) -> bool {
        self.name == ARCH
    }

    /// A call of its program on this machine.
    pub(crate) fn command(&self, program: &Path) -> Command {
        if self.is_native() {
            return Command::new(program);
        }
        let mut command = Command::new(self.emulator);
        command.arg(program);
        command
    }

    /// Installs what builds a static program, and sets it in the environment of a build.
    pub(crate) fn prepare(&self, build: &mut Command) -> Result<()> {
        if self.is_native() {
            return setup::static_target(self.target);
        }
        setup::cross_target(self.target, (self.name, self.gcc, self.emulator))?;
        // C is compiled with the headers of musl, and linked by Rust with its own copy of musl.
        let musl = workspace().join("target/testkit").join(format!("musl-{}", self.debian));
        if !musl.exists() {
            let mut download = Command::new("sh");
            download.args(["-c", include_str!("musl_headers.sh"), "musl"]);
            step::run("the headers of musl", download.arg(self.debian).arg(&musl))?;
        }
        let compiler = output(Command::new(self.gcc).arg("-print-file-name=include"))?;
        let headers = musl.join("usr/include").join(format!("{}-linux-musl", self.name));
        let mut flags = format!("-nostdinc -isystem {compiler} -isystem {}", headers.display());
        if self.name == AARCH64.name {
            // The functions for atomics in GCC's library need the C library of GNU.
            flags += " -mno-outline-atomics";
        }
        let target = self.target.replace('-', "_");
        build.env(format!("CC_{target}"), self.gcc);
        build.env(format!("CFLAGS_{target}"), flags);
        build.env(format!("CARGO_TARGET_{}_LINKER", target.to_uppercase()), self.gcc);
        Ok(())
    }
}
