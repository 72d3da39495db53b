//! A Debian package: an `ar` archive with a version, the control files and the data.

use anyhow::Result;

use super::archive::{Tree, gzip};
use super::files::Files;
use super::platform::Platform;
use super::{Release, deploy};

/// Files that an administrator may change: an upgrade keeps the changes.
const CONFIGURATION: &str = "/etc/hob/hob.toml\n";

pub(crate) fn name(release: &Release, platform: &Platform) -> String {
    format!("hob_{}_{}.deb", release.version, platform.debian)
}

pub(crate) fn package(release: &Release, platform: &Platform, files: &Files) -> Result<Vec<u8>> {
    let data = files.debian()?;
    let mut control = Tree::default();
    let fields = deploy("debian/control")?
        .replace("@VERSION@", &release.version)
        .replace("@ARCHITECTURE@", platform.debian)
        .replace("@SIZE@", &data.size().div_ceil(1024).to_string());
    control.file("control", 0o644, fields);
    control.file("conffiles", 0o644, CONFIGURATION);
    for script in ["postinst", "prerm", "postrm"] {
        control.file(script, 0o755, deploy(&format!("debian/{script}"))?);
    }
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", gzip(&control.tar(release.time)?)?),
        ("data.tar.gz", gzip(&data.tar(release.time)?)?),
    ];
    Ok(ar(&members, release.time))
}

/// An archive in the format of `ar`: a header of 60 bytes before each member, and an even number of bytes after it.
fn ar(members: &[(&str, Vec<u8>)], time: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, content) in members {
        let size = content.len();
        archive.extend(format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, "100644").bytes());
        archive.extend(content);
        if !size.is_multiple_of(2) {
            archive.push(b'\n');
        }
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::super::output;
    use super::super::platform::X86_64;
    use super::*;
    use std::fs;
    use std::process::Command;

    #[test]
    fn dpkg_reads_the_package() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hob.deb");
        let release = Release::sample();
        fs::write(&path, package(&release, &X86_64, &Files::sample()).unwrap()).unwrap();
        let dpkg = |option| output(Command::new("dpkg-deb").arg(option).arg(&path)).unwrap();
        for field in ["Package: hob", "Version: 1.2.3", "Architecture: amd64", "Installed-Size: "] {
            assert!(dpkg("--field").contains(field), "{}", dpkg("--field"));
        }
        let contents = dpkg("--contents");
        let line = |path: &str| {
            contents.lines().find(|line| line.ends_with(path)).unwrap_or_else(|| panic!("{contents}"))
        };
        assert!(line(" usr/bin/hob").starts_with("-rwxr-xr-x 0/0 "), "{contents}");
        assert!(line(" etc/hob/hob.toml").starts_with("-rw-r--r-- 0/0 "), "{contents}");
        let control = folder.path().join("control");
        output(Command::new("dpkg-deb").arg("--control").arg(&path).arg(&control)).unwrap();
        assert_eq!(fs::read_to_string(control.join("conffiles")).unwrap(), CONFIGURATION);
        for script in ["postinst", "prerm", "postrm"] {
            assert!(output(Command::new("sh").arg("-n").arg(control.join(script))).unwrap().is_empty());
        }
    }
}
