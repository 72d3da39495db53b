//! Known vulnerabilities of dependencies. `cargo xtask advisories --from DIR` reads a clone of the RustSec advisory database
//! and saves which versions of which crates are affected; `cargo xtask tidy` compares that with the lock files, without a
//! network.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use semver::{Version, VersionReq};
use serde::{Deserialize, Serialize};

use crate::lock::Lock;
use crate::workspace;

/// Where the snapshot is, from the root of the workspace.
pub(crate) const SNAPSHOT: &str = "xtask/advisories.toml";

const HEADER: &str = "\
# Which versions of which crates have an advisory at https://rustsec.org. Written by `cargo xtask advisories --from DIR`,
# where DIR is a clone of https://github.com/RustSec/advisory-db. `date` is that of the newest advisory.

";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// A clone of https://github.com/RustSec/advisory-db
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
}

/// All advisories about crates on a day.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Snapshot {
    pub(crate) date: String,
    #[serde(rename = "advisory")]
    advisories: Vec<Advisory>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Advisory {
    id: String,
    package: String,
    /// `unmaintained`, `unsound` or `notice`; `None` for a vulnerability.
    #[serde(skip_serializing_if = "Option::is_none")]
    informational: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    patched: Vec<VersionReq>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unaffected: Vec<VersionReq>,
}

/// The start of a file of the database, as far as it is used.
#[derive(Debug, Deserialize)]
struct Entry {
    advisory: EntryHead,
    versions: EntryVersions,
}

#[derive(Debug, Deserialize)]
struct EntryHead {
    id: String,
    package: String,
    date: String,
    informational: Option<String>,
    withdrawn: Option<String>,
}

#[derive(Debug, Deserialize)]
struct EntryVersions {
    #[serde(default)]
    patched: Vec<VersionReq>,
    #[serde(default)]
    unaffected: Vec<VersionReq>,
}

/// Saves the snapshot.
pub(crate) fn run(options: &Options) -> Result<()> {
    let snapshot = Snapshot::read_database(&options.from)?;
    let path = workspace().join(SNAPSHOT);
    fs::write(&path, format!("{HEADER}{}", toml::to_string(&snapshot)?))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("xtask: {SNAPSHOT}: {} advisories, the newest of {}", snapshot.advisories.len(), snapshot.date);
    Ok(())
}

impl Snapshot {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        Ok(toml::from_str(text)?)
    }

    fn read_database(folder: &Path) -> Result<Self> {
        let crates = folder.join("crates");
        let mut snapshot = Self { date: String::new(), advisories: Vec::new() };
        for folder in files(&crates)? {
            for path in files(&folder)? {
                let text =
                    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                let entry = Entry::parse(&text).with_context(|| path.display().to_string())?;
                snapshot.date = snapshot.date.max(entry.advisory.date);
                if entry.advisory.withdrawn.is_none() {
                    snapshot.advisories.push(Advisory {
                        id: entry.advisory.id,
                        package: entry.advisory.package,
                        informational: entry.advisory.informational,
                        patched: entry.versions.patched,
                        unaffected: entry.versions.unaffected,
                    });
                }
            }
        }
        ensure!(!snapshot.advisories.is_empty(), "{} has no advisories", crates.display());
        snapshot.advisories.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(snapshot)
    }

    /// The advisories that concern a package of `lock`, except those in `ignored`: id, what is affected, and what to do.
    pub(crate) fn affecting(&self, lock: &Lock, ignored: &[&str]) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for package in lock.packages.iter().filter(|package| package.source.is_some()) {
            let version = Version::parse(&package.version)
                .with_context(|| format!("{} {}", package.name, package.version))?;
            for advisory in self.advisories.iter().filter(|advisory| advisory.package == package.name) {
                if !ignored.contains(&&*advisory.id) && advisory.affects(&version) {
                    found.push(format!(
                        "{} {version} has the advisory {} ({}); {}",
                        package.name,
                        advisory.id,
                        advisory.informational.as_deref().unwrap_or("vulnerability"),
                        advisory.remedy()
                    ));
                }
            }
        }
        Ok(found)
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.advisories.iter().any(|advisory| advisory.id == id)
    }
}

impl Advisory {
    /// A pre-release matches only a range that names one, so it counts as affected rather than as patched.
    fn affects(&self, version: &Version) -> bool {
        !self.patched.iter().chain(&self.unaffected).any(|range| range.matches(version))
    }

    fn remedy(&self) -> String {
        let ranges: Vec<String> = self.patched.iter().map(|range| format!("{range}")).collect();
        match &*ranges {
            [] => "there is no fixed version: replace the crate, or explain in deny.toml why it is harmless"
                .to_owned(),
            ranges => format!("update to {}", ranges.join(" or ")),
        }
    }
}

impl Entry {
    /// A file is Markdown that starts with a block of TOML.
    fn parse(text: &str) -> Result<Self> {
        let Some((block, _)) = text.strip_prefix("```toml\n").and_then(|rest| rest.split_once("\n```"))
        else {
            bail!("does not start with a block of TOML");
        };
        Ok(toml::from_str(block)?)
    }
}

/// What is in a folder, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let listed = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = listed.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = "```toml\n[advisory]\nid = \"RUSTSEC-2000-0001\"\npackage = \"leaky\"\n\
        date = \"2000-01-02\"\n[versions]\npatched = [\">= 1.2.3, < 2.0.0\", \">= 2.1.0\"]\n\
        unaffected = [\"< 1.0.0\"]\n```\n\n# Text\n";

    fn snapshot() -> Snapshot {
        let folder = tempfile::tempdir().unwrap();
        let leaky = folder.path().join("crates/leaky");
        fs::create_dir_all(&leaky).unwrap();
        fs::write(leaky.join("RUSTSEC-2000-0001.md"), ENTRY).unwrap();
        let withdrawn =
            ENTRY.replace("0001", "0002").replace("[versions]", "withdrawn = \"2000-01-03\"\n[versions]");
        fs::write(leaky.join("RUSTSEC-2000-0002.md"), withdrawn).unwrap();
        Snapshot::read_database(folder.path()).unwrap()
    }

    fn lock(name: &str, version: &str) -> Lock {
        let source = "registry+https://github.com/rust-lang/crates.io-index";
        Lock::parse(&format!(
            "[[package]]\nname = \"{name}\"\nversion = \"{version}\"\nsource = \"{source}\""
        ))
        .unwrap()
    }

    #[test]
    fn vulnerable_version_in_the_lock_file_is_found() {
        let saved = toml::to_string(&snapshot()).unwrap();
        let snapshot = Snapshot::parse(&saved).unwrap();
        assert_eq!(snapshot.date, "2000-01-02");
        for vulnerable in ["1.0.0", "1.2.2", "2.0.9", "2.1.0-rc.1"] {
            let found = snapshot.affecting(&lock("leaky", vulnerable), &[]).unwrap();
            let expected = format!("leaky {vulnerable} has the advisory RUSTSEC-2000-0001 (vulnerability)");
            assert!(matches!(&*found, [one] if one.starts_with(&expected)), "{found:?}");
        }
        for safe in ["0.9.9", "1.2.3", "1.9.0", "2.1.0", "3.0.0"] {
            assert!(snapshot.affecting(&lock("leaky", safe), &[]).unwrap().is_empty(), "{safe}");
        }
        assert!(snapshot.affecting(&lock("tight", "1.0.0"), &[]).unwrap().is_empty());
    }

    #[test]
    fn ignored_advisory_is_not_reported() {
        let ignored = ["RUSTSEC-2000-0001"];
        assert!(snapshot().affecting(&lock("leaky", "1.0.0"), &ignored).unwrap().is_empty());
        assert_eq!(snapshot().affecting(&lock("leaky", "1.0.0"), &["RUSTSEC-2000-0003"]).unwrap().len(), 1);
    }

    #[test]
    fn folder_without_advisories_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Snapshot::read_database(folder.path()).is_err());
        fs::create_dir(folder.path().join("crates")).unwrap();
        assert!(Snapshot::read_database(folder.path()).is_err());
    }
}
