//! The files of a release, and where each package has them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::archive::{Tree, gzip};
use super::platform::Platform;
use super::{deploy, output};
use crate::workspace;

/// The user and group of an image; no such user exists on the host.
pub(crate) const IMAGE_USER: u64 = 65_532;

const COMPLETIONS: [(&str, &str, &str); 3] = [
    ("bash", "hob.bash", "usr/share/bash-completion/completions/hob"),
    ("zsh", "_hob", "usr/share/zsh/vendor-completions/_hob"),
    ("fish", "hob.fish", "usr/share/fish/vendor_completions.d/hob.fish"),
];

/// The program and what it says about itself.
pub(crate) struct Files {
    program: Vec<u8>,
    /// Manual pages: names and texts.
    manual: Vec<(String, Vec<u8>)>,
    /// In the order of [`COMPLETIONS`].
    completions: Vec<String>,
}

impl Files {
    pub(crate) fn of(platform: &Platform, program: &Path) -> Result<Self> {
        let folder = program.with_file_name("man");
        output(platform.command(program).arg("man").arg(&folder))?;
        let mut manual = Vec::new();
        for page in fs::read_dir(&folder)? {
            let page = page?;
            manual.push((page.file_name().to_string_lossy().into_owned(), fs::read(page.path())?));
        }
        let completions = COMPLETIONS
            .iter()
            .map(|(shell, ..)| output(platform.command(program).args(["completions", shell])))
            .collect::<Result<_>>()?;
        let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        Ok(Self { program: bytes, manual, completions })
    }

    /// A folder `base` that can be unpacked anywhere.
    pub(crate) fn tarball(&self, base: &str) -> Result<Tree> {
        let mut tree = Tree::default();
        tree.file(&format!("{base}/hob"), 0o755, self.program.clone());
        for name in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "hob.example.toml"] {
            tree.file(&format!("{base}/{name}"), 0o644, document(name)?);
        }
        tree.file(&format!("{base}/hob.service"), 0o644, deploy("systemd/hob.service")?);
        for (name, text) in &self.manual {
            tree.file(&format!("{base}/man/{name}"), 0o644, text.clone());
        }
        for ((_, name, _), text) in COMPLETIONS.iter().zip(&self.completions) {
            tree.file(&format!("{base}/completions/{name}"), 0o644, text.as_str());
        }
        Ok(tree)
    }

    /// The root folder of a Debian system.
    pub(crate) fn debian(&self) -> Result<Tree> {
        let mut tree = Tree::default();
        tree.file("usr/bin/hob", 0o755, self.program.clone());
        tree.file("lib/systemd/system/hob.service", 0o644, deploy("systemd/hob.service")?);
        tree.file("etc/hob/hob.toml", 0o644, deploy("hob.toml")?);
        tree.file("usr/share/doc/hob/copyright", 0o644, copyright()?);
        tree.file("usr/share/doc/hob/changelog.gz", 0o644, gzip(document("CHANGELOG.md")?.as_bytes())?);
        tree.file("usr/share/doc/hob/hob.example.toml", 0o644, document("hob.example.toml")?);
        for (name, text) in &self.manual {
            tree.file(&format!("usr/share/man/man1/{name}.gz"), 0o644, gzip(text)?);
        }
        for ((_, _, path), text) in COMPLETIONS.iter().zip(&self.completions) {
            tree.file(path, 0o644, text.as_str());
        }
        Ok(tree)
    }

    /// The root folder of an image. The certificate authorities are part of the program.
    pub(crate) fn image(&self) -> Result<Tree> {
        let mut tree = Tree::default();
        tree.file("usr/bin/hob", 0o755, self.program.clone());
        tree.file("etc/hob/hob.toml", 0o644, deploy("hob.toml")?);
        tree.file("etc/passwd", 0o644, format!("hob:x:{IMAGE_USER}:{IMAGE_USER}::/var/lib/hob:/\n"));
        tree.file("etc/group", 0o644, format!("hob:x:{IMAGE_USER}:\n"));
        tree.folder("tmp", 0o1777, 0);
        tree.folder("var/lib/hob", 0o700, IMAGE_USER);
        Ok(tree)
    }

    /// Files without a real program, for tests of the formats.
    #[cfg(test)]
    pub(crate) fn sample() -> Self {
        Self {
            program: b"#!/bin/sh\necho hob\n".to_vec(),
            manual: vec![("hob.1".to_owned(), b".TH hob 1\n".to_vec())],
            completions: vec!["complete".to_owned(); COMPLETIONS.len()],
        }
    }
}

/// The copyright file of the Debian package, in which an empty line is a full stop.
fn copyright() -> Result<String> {
    let lines = document("LICENSE-MIT")?;
    let licence: Vec<String> = lines
        .lines()
        .map(|line| if line.is_empty() { " .".to_owned() } else { format!(" {line}") })
        .collect();
    Ok(deploy("debian/copyright")?.replace("@MIT@", &licence.join("\n")))
}

/// A file in the root of the workspace.
fn document(name: &str) -> Result<String> {
    let path = workspace().join(name);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}
