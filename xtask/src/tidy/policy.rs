//! What `deny.toml` says about the dependencies: licences, banned crates, duplicate versions, registries. The file has
//! the format of cargo-deny, which takes minutes to compile; this is the part of it that is used here.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use spdx::{Expression, Licensee, ParseMode};

use super::Tree;
use crate::cargo;
use crate::lock::Lock;

const PAGE: &str = "deny.toml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Policy {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
    pub(super) advisories: Advisories,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Licenses {
    allow: Vec<String>,
    #[serde(default)]
    exceptions: Vec<Exception>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Bans {
    multiple_versions: Level,
    deny: Vec<Entry>,
    #[serde(default)]
    skip: Vec<Entry>,
    #[serde(default)]
    skip_tree: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Sources {
    unknown_registry: Level,
    unknown_git: Level,
    allow_registry: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Advisories {
    #[serde(default)]
    pub(super) ignore: Vec<Ignored>,
}

/// An advisory that does not concern Hob, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ignored {
    pub(super) id: String,
    #[serde(rename = "reason")]
    _reason: String,
}

/// A crate (`name` or `name@version`), and why it is listed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

/// Only `deny`: a warning that does not fail is not read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Deny,
}

/// The part of `cargo metadata` that is used.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    dependencies: Vec<String>,
}

impl Tree {
    pub(super) fn check_policy(&self, problems: &mut Vec<String>) -> Result<()> {
        let policy = self.policy()?;
        let mut metadata = cargo();
        metadata.args(["metadata", "--format-version", "1", "--locked"]);
        for target in &policy.graph.targets {
            metadata.args(["--filter-platform", target]);
        }
        let output = metadata.output().context("cannot run cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let metadata: Metadata = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
        policy.check_licenses(&metadata, problems)?;
        policy.check_duplicates(&metadata, problems);
        for (path, lock) in self.locks()? {
            policy.check_lock(path, &lock, problems);
        }
        Ok(())
    }

    pub(super) fn policy(&self) -> Result<Policy> {
        let text = self.0.get(PAGE).with_context(|| format!("{PAGE} is missing"))?;
        toml::from_str(text).context(PAGE)
    }

    /// Every lock file of the project, by its path.
    pub(super) fn locks(&self) -> Result<Vec<(&str, Lock)>> {
        let files = self.0.iter().filter(|(path, _)| *path == "Cargo.lock" || path.ends_with("/Cargo.lock"));
        files.map(|(path, text)| Ok((&**path, Lock::parse(text).with_context(|| path.clone())?))).collect()
    }
}

impl Policy {
    fn check_licenses(&self, metadata: &Metadata, problems: &mut Vec<String>) -> Result<()> {
        let allowed = licensees(&self.licenses.allow)?;
        for package in &metadata.packages {
            let Some(license) = &package.license else {
                problems.push(format!("{} {} declares no licence", package.name, package.version));
                continue;
            };
            let expression = Expression::parse_mode(license, ParseMode::LAX)
                .with_context(|| format!("licence of {}: {license}", package.name))?;
            let excepted = match self.licenses.exceptions.iter().find(|entry| entry.name == package.name) {
                Some(entry) => licensees(&entry.allow)?,
                None => Vec::new(),
            };
            let accepts = |license: &spdx::LicenseReq| {
                allowed.iter().chain(&excepted).any(|allowed| allowed.satisfies(license))
            };
            if !expression.evaluate(accepts) {
                problems.push(format!(
                    "{} {} has the licence {license}, which {PAGE} does not allow",
                    package.name, package.version
                ));
            }
        }
        for entry in &self.licenses.exceptions {
            if !metadata.packages.iter().any(|package| package.name == entry.name) {
                problems.push(format!("{PAGE}: no dependency is named {}; remove the exception", entry.name));
            }
        }
        Ok(())
    }

    /// One version of each crate, except those that `skip` and `skip-tree` explain.
    fn check_duplicates(&self, metadata: &Metadata, problems: &mut Vec<String>) {
        let Level::Deny = self.bans.multiple_versions;
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for package in &metadata.packages {
            versions.entry(&package.name).or_default().insert(&package.version);
        }
        let trees = metadata.trees(&self.bans.skip_tree);
        for (name, versions) in &versions {
            let skipped = |version: &str| {
                self.bans.skip.iter().any(|entry| entry.names(name, version))
                    || trees.contains(&(*name, version))
            };
            let counted: Vec<&str> = versions.iter().copied().filter(|version| !skipped(version)).collect();
            if counted.len() > 1 {
                problems.push(format!(
                    "{name} has the versions {}; see cargo tree -d, then update a dependency or explain it in {PAGE}",
                    counted.join(", ")
                ));
            }
        }
        for entry in self.bans.skip.iter().chain(&self.bans.skip_tree) {
            let found = metadata.packages.iter().find(|package| entry.names(&package.name, &package.version));
            let tree = self.bans.skip_tree.iter().any(|tree| tree.name == entry.name);
            if !found.is_some_and(|package| tree || versions[&*package.name].len() > 1) {
                problems.push(format!("{PAGE}: {} is not a duplicate; remove it", entry.name));
            }
        }
    }

    /// Banned crates and unknown registries, also of platforms that are not built here.
    fn check_lock(&self, path: &str, lock: &Lock, problems: &mut Vec<String>) {
        let (Level::Deny, Level::Deny) = (&self.sources.unknown_registry, &self.sources.unknown_git);
        for package in &lock.packages {
            if let Some(entry) =
                self.bans.deny.iter().find(|entry| entry.names(&package.name, &package.version))
            {
                problems.push(format!("{path}: {} is banned: {}", package.name, entry.reason));
            }
            // Without a source, it is a crate of this project.
            let Some(source) = &package.source else { continue };
            let registry = source.strip_prefix("registry+");
            if !registry.is_some_and(|url| self.sources.allow_registry.iter().any(|known| known == url)) {
                problems.push(format!(
                    "{path}: {} comes from {source}, which {PAGE} does not allow",
                    package.name
                ));
            }
        }
    }
}

impl Metadata {
    /// Name and version of everything that `roots` depend on, and of the roots.
    fn trees(&self, roots: &[Entry]) -> BTreeSet<(&str, &str)> {
        let packages: BTreeMap<&str, &Package> =
            self.packages.iter().map(|package| (&*package.id, package)).collect();
        let nodes: BTreeMap<&str, &Node> = self.resolve.nodes.iter().map(|node| (&*node.id, node)).collect();
        let is_root =
            |package: &&Package| roots.iter().any(|entry| entry.names(&package.name, &package.version));
        let mut open: Vec<&str> = self.packages.iter().filter(is_root).map(|package| &*package.id).collect();
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            if seen.insert(id)
                && let Some(node) = nodes.get(id)
            {
                open.extend(node.dependencies.iter().map(String::as_str));
            }
        }
        seen.iter()
            .filter_map(|id| packages.get(id))
            .map(|package| (&*package.name, &*package.version))
            .collect()
    }
}

impl Entry {
    fn names(&self, name: &str, version: &str) -> bool {
        match self.name.split_once('@') {
            Some((named, at)) => named == name && at == version,
            None => self.name == name,
        }
    }
}

fn licensees(names: &[String]) -> Result<Vec<Licensee>> {
    names.iter().map(|name| Licensee::parse(name).with_context(|| format!("{PAGE}: {name}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = r#"
        [graph]
        targets = []
        [licenses]
        allow = ["MIT", "Apache-2.0"]
        exceptions = [{ crate = "roots", allow = ["MPL-2.0"] }]
        [bans]
        multiple-versions = "deny"
        deny = [{ crate = "openssl", reason = "one TLS library" }]
        skip = [{ crate = "old@1.0.0", reason = "test" }]
        skip-tree = [{ crate = "roots@1.0.0", reason = "test" }]
        [sources]
        unknown-registry = "deny"
        unknown-git = "deny"
        allow-registry = ["https://example.com/index"]
        [advisories]
    "#;

    fn package(name: &str, version: &str, license: &str) -> String {
        format!(
            r#"{{"id": "{name}@{version}", "name": "{name}", "version": "{version}", "license": "{license}"}}"#
        )
    }

    /// A graph in which `roots` depends on `below`, and nothing on anything else.
    fn graph(packages: &[String]) -> Metadata {
        let nodes = r#"[{"id": "roots@1.0.0", "dependencies": ["below@1.0.0"]}]"#;
        let packages = packages.join(",");
        serde_json::from_str(&format!(r#"{{"packages": [{packages}], "resolve": {{"nodes": {nodes}}}}}"#))
            .unwrap()
    }

    fn policy() -> Policy {
        toml::from_str(POLICY).unwrap()
    }

    #[test]
    fn unlisted_license_is_a_problem() {
        let roots = package("roots", "1.0.0", "MPL-2.0");
        let licenses = |license: &str| {
            let mut problems = Vec::new();
            let metadata = graph(&[roots.clone(), package("a", "1.0.0", license)]);
            policy().check_licenses(&metadata, &mut problems).unwrap();
            problems
        };
        assert!(licenses("MIT").is_empty());
        assert!(licenses("GPL-3.0-only OR MIT").is_empty());
        assert!(licenses("MIT/Apache-2.0").is_empty());
        assert_eq!(
            licenses("MIT AND GPL-3.0-only"),
            ["a 1.0.0 has the licence MIT AND GPL-3.0-only, which deny.toml does not allow"]
        );
        // The exception of one crate does not hold for another.
        assert_eq!(licenses("MPL-2.0").len(), 1);
    }

    #[test]
    fn unexplained_duplicate_is_a_problem() {
        let explained = ["roots@1.0.0", "below@1.0.0", "below@2.0.0", "old@1.0.0", "old@2.0.0"];
        let duplicates = |more: &[&str]| {
            let packages: Vec<String> = explained
                .iter()
                .chain(more)
                .map(|package_at| {
                    let (name, version) = package_at.split_once('@').unwrap();
                    package(name, version, "MIT")
                })
                .collect();
            let mut problems = Vec::new();
            policy().check_duplicates(&graph(&packages), &mut problems);
            problems
        };
        assert!(duplicates(&[]).is_empty());
        assert!(duplicates(&["syn@2.0.0"]).is_empty());
        let found = duplicates(&["syn@2.0.0", "syn@3.0.0"]);
        assert!(
            matches!(&*found, [one] if one.starts_with("syn has the versions 2.0.0, 3.0.0")),
            "{found:?}"
        );
        // A third version is not covered by the entry for the first.
        assert_eq!(duplicates(&["old@3.0.0"]).len(), 1);
        assert_eq!(duplicates(&["below@3.0.0"]).len(), 1);
    }

    #[test]
    fn entry_that_explains_nothing_is_a_problem() {
        let mut problems = Vec::new();
        policy().check_duplicates(&graph(&[package("old", "1.0.0", "MIT")]), &mut problems);
        assert_eq!(
            problems,
            [
                "deny.toml: old@1.0.0 is not a duplicate; remove it",
                "deny.toml: roots@1.0.0 is not a duplicate; remove it"
            ]
        );
    }

    #[test]
    fn banned_crate_and_unknown_source_are_problems() {
        let lock = |name: &str, source: &str| {
            let lock = Lock::parse(&format!(
                "[[package]]\nname = \"{name}\"\nversion = \"1.0.0\"\nsource = \"{source}\""
            ));
            let mut problems = Vec::new();
            policy().check_lock("Cargo.lock", &lock.unwrap(), &mut problems);
            problems
        };
        assert!(lock("ring", "registry+https://example.com/index").is_empty());
        assert_eq!(
            lock("openssl", "registry+https://example.com/index"),
            ["Cargo.lock: openssl is banned: one TLS library"]
        );
        assert_eq!(lock("ring", "registry+https://example.com/other").len(), 1);
        assert_eq!(lock("ring", "git+https://example.com/index?rev=1#1").len(), 1);
    }
}
