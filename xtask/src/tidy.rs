//! `cargo xtask tidy`: checks what the architecture and the documentation say about the source tree.

mod logs;
mod policy;
mod scopes;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use regex::Regex;

use crate::advisories::{SNAPSHOT, Snapshot};
use crate::{cargo, workspace};

/// The crates of Hob, each with those that it may depend on beside [`SHARED`]. Tests may use more: see
/// [`TEST_CRATES`].
const EDGES: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("commands", &[]),
    ("histogram", &[]),
    ("engine", &["commands"]),
    ("schema", &["commands"]),
    ("schema-audit", &["engine", "schema", "store"]),
    ("schema-macros", &["schema"]),
    ("schema-proxy", &["commands", "net", "schema", "schema-audit", "store"]),
    ("net", &[]),
    ("expression", &[]),
    ("document", &[]),
    ("store", &["commands", "engine", "histogram"]),
    ("database", &[]),
    ("trace", &["net"]),
    ("service", &["database", "net", "schema", "schema-macros", "store", "trace"]),
    ("web", &["database", "net", "schema", "service", "store", "trace"]),
    ("load-generator", &["document", "expression", "histogram", "net"]),
    ("admission", &["net", "schema", "schema-macros", "store"]),
    ("gateway", SERVICE),
    ("uptime", SERVICE),
    ("chat", SERVICE),
    ("load", SERVICE),
    ("pipeline", SERVICE),
    ("testkit", &[]),
    // It checks Hob from outside only.
    ("chaos", &["testkit"]),
];

/// What every crate may depend on.
const SHARED: &[&str] = &["units"];

/// What a service may depend on. Never another service.
const SERVICE: &[&str] = &[
    "admission",
    "database",
    "document",
    "expression",
    "histogram",
    "load-generator",
    "net",
    "schema",
    "schema-macros",
    "service",
    "store",
    "trace",
    "web",
];

/// Crates for tests only. Like the binary and the benchmarks, they may depend on everything.
const TEST_CRATES: &[&str] = &["fixtures", "fuzz"];

/// What a program does not have to compile if it only talks to Redis: the engine, and Lua.
const ENGINE: &[&str] = &["hob-engine", "mlua"];

/// Maximum length of a source file.
const MAX_LINES: usize = 500;

/// Dependencies that are used without appearing in the source.
const USED_UNNAMED: &[(&str, &str)] = &[("testkit", "rustls")];

pub(crate) fn run() -> Result<()> {
    let tree = Tree::read()?;
    let mut problems = Vec::new();
    tree.check_edges(&mut problems)?;
    tree.check_engine_is_optional(&mut problems)?;
    tree.check_dependencies_are_used(&mut problems)?;
    tree.check_policy(&mut problems)?;
    tree.check_advisories(&mut problems)?;
    tree.check_lengths(&mut problems);
    tree.check_keys(&mut problems)?;
    tree.check_contract_ids(&mut problems)?;
    tree.check_queries(&mut problems)?;
    tree.check_scopes(&mut problems)?;
    tree.check_links(&mut problems)?;
    tree.check_logs(&mut problems)?;
    tree.check_words(&mut problems)?;
    if problems.is_empty() {
        return Ok(());
    }
    for line in &problems {
        eprintln!("tidy: {line}");
    }
    bail!("{} problems found", problems.len())
}

/// The files of the project, by their paths from its root.
struct Tree(BTreeMap<String, String>);

impl Tree {
    /// All files that git tracks, and new ones that it does not ignore.
    fn read() -> Result<Self> {
        let mut git = Command::new("git");
        git.current_dir(workspace()).args(["ls-files", "-co", "--exclude-standard"]);
        let listed = git.output().context("cannot run git")?;
        let mut files = BTreeMap::new();
        for path in String::from_utf8_lossy(&listed.stdout).lines() {
            // Images and fonts are not UTF-8.
            if let Ok(text) = fs::read_to_string(workspace().join(path)) {
                files.insert(path.to_owned(), text);
            }
        }
        Ok(Self(files))
    }

    fn with_ending<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().filter(move |(path, _)| path.ends_with(ending)).map(|(path, text)| (&**path, &**text))
    }

    /// The manifests of the crates, by name.
    fn manifests(&self) -> Result<BTreeMap<&str, toml::Table>> {
        let manifests = self.with_ending("/Cargo.toml").filter_map(|(path, text)| {
            let name = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
            if name.contains('/') {
                return None;
            }
            Some(text.parse().with_context(|| path.to_owned()).map(|table| (name, table)))
        });
        manifests.collect()
    }

    /// A crate depends only on the crates that `EDGES` lists for it.
    fn check_edges(&self, problems: &mut Vec<String>) -> Result<()> {
        for (name, manifest) in self.manifests()? {
            if TEST_CRATES.contains(&name) || name == "hob" {
                continue;
            }
            let Some((_, allowed)) = EDGES.iter().find(|(known, _)| *known == name) else {
                problems.push(format!("crates/{name} is missing from EDGES in xtask/src/tidy.rs; add it"));
                continue;
            };
            for dependency in names(&manifest, "dependencies") {
                let Some(ours) = dependency.strip_prefix("hob-") else { continue };
                if !allowed.contains(&ours) && !SHARED.contains(&ours) {
                    problems.push(format!(
                        "crates/{name} must not depend on {ours}; see EDGES in xtask/src/tidy.rs"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Without its default features no crate except the engine depends on the engine.
    fn check_engine_is_optional(&self, problems: &mut Vec<String>) -> Result<()> {
        let mut cargo = cargo();
        cargo.args([
            "tree",
            "--no-default-features",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ]);
        for (name, _) in EDGES.iter().filter(|(name, _)| *name != "engine") {
            cargo.args(["-p", &format!("hob-{name}")]);
        }
        let listed = cargo.output().context("cannot run cargo tree")?;
        if !listed.status.success() {
            bail!("cargo tree failed: {}", String::from_utf8_lossy(&listed.stderr).trim());
        }
        let listed = String::from_utf8_lossy(&listed.stdout);
        for name in listed.lines().filter_map(|line| line.split(' ').next()).collect::<BTreeSet<_>>() {
            if ENGINE.contains(&name) {
                problems.push(format!(
                    "a crate depends on {name} without the feature `embedded` of hob-store; find it with \
                     cargo tree -p CRATE --no-default-features -e normal -i {name}"
                ));
            }
        }
        Ok(())
    }

    fn check_dependencies_are_used(&self, problems: &mut Vec<String>) -> Result<()> {
        for (name, manifest) in self.manifests()? {
            // A dependency that only tests use must be a dev-dependency.
            for (kind, folder) in [("dependencies", "/src/"), ("dev-dependencies", "/")] {
                let folder = format!("crates/{name}{folder}");
                let sources: Vec<&str> = self
                    .with_ending(".rs")
                    .filter(|(path, _)| path.starts_with(&folder))
                    .map(|(_, text)| text)
                    .collect();
                for dependency in names(&manifest, kind) {
                    let named = Regex::new(&format!(r"\b{}\b", dependency.replace('-', "_")))?;
                    let unnamed = USED_UNNAMED.contains(&(name, &dependency));
                    if !unnamed && !sources.iter().any(|text| named.is_match(text)) {
                        problems.push(format!(
                            "crates/{name} does not use {dependency}; remove it from [{kind}]"
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// No locked version has a known vulnerability, as far as the snapshot says.
    fn check_advisories(&self, problems: &mut Vec<String>) -> Result<()> {
        let Some(text) = self.0.get(SNAPSHOT) else {
            println!(
                "tidy: advisories are not checked: {SNAPSHOT} is missing; see cargo xtask advisories --help"
            );
            return Ok(());
        };
        let snapshot = Snapshot::parse(text).context(SNAPSHOT)?;
        let policy = self.policy()?;
        let ignored: Vec<&str> = policy.advisories.ignore.iter().map(|entry| &*entry.id).collect();
        for (path, lock) in self.locks()? {
            problems.extend(
                snapshot.affecting(&lock, &ignored)?.into_iter().map(|found| format!("{path}: {found}")),
            );
        }
        for id in ignored.into_iter().filter(|id| !snapshot.contains(id)) {
            problems.push(format!("deny.toml ignores {id}, which {SNAPSHOT} does not contain"));
        }
        Ok(())
    }

    fn check_lengths(&self, problems: &mut Vec<String>) {
        for (path, text) in self.with_ending(".rs") {
            let lines = text.lines().count();
            if lines > MAX_LINES {
                problems.push(format!("{path} has {lines} lines; split it, the maximum is {MAX_LINES}"));
            }
        }
    }

    /// Keys must come from the schemas: finds format strings that start like a declared key.
    fn check_keys(&self, problems: &mut Vec<String>) -> Result<()> {
        let pattern = Regex::new(r#"(?m)^pattern\s*=\s*"([a-z_]+:)"#)?;
        let schemas =
            self.0.iter().filter(|(path, _)| path.starts_with("schemas/") && path.ends_with(".toml"));
        let prefixes: BTreeSet<String> = schemas
            .flat_map(|(_, text)| {
                pattern.captures_iter(text).map(|found| regex::escape(&found[1])).collect::<Vec<_>>()
            })
            .collect();
        let built = Regex::new(&format!(
            r#"format!\(\s*"(?:ha:|courtlistener:)?(?:{})[^"]*\{{"#,
            prefixes.into_iter().collect::<Vec<_>>().join("|")
        ))?;
        for (path, text) in self.with_ending(".rs").filter(|(path, _)| is_product(path)) {
            for found in built.find_iter(text) {
                problems.push(format!(
                    "{}: key built by hand; use the typed keys: {}",
                    position(path, text, found.start()),
                    found.as_str()
                ));
            }
        }
        Ok(())
    }

    /// The queries of a service are in its `database` module.
    fn check_queries(&self, problems: &mut Vec<String>) -> Result<()> {
        let query = Regex::new(r"\b(sql|insert_all)\(")?;
        for (name, _) in EDGES.iter().filter(|(_, allowed)| std::ptr::eq(*allowed, SERVICE)) {
            let (source, database) = (format!("crates/{name}/src/"), format!("crates/{name}/src/database"));
            for (path, text) in self.with_ending(".rs").filter(|(path, _)| path.starts_with(&source)) {
                if !path.starts_with(&database) && !path.contains("tests") && query.is_match(text) {
                    problems.push(format!("{path}: a query outside of the database module"));
                }
            }
        }
        Ok(())
    }

    /// Every contract id that is mentioned must be explained in docs/contract.md.
    fn check_contract_ids(&self, problems: &mut Vec<String>) -> Result<()> {
        const PAGE: &str = "docs/contract.md";
        let explained = Regex::new(r"(?m)^\| ([GUCLP]\d{1,2}) \|")?;
        let page = self.0.get(PAGE).with_context(|| format!("{PAGE} is missing"))?;
        let explained: BTreeSet<&str> =
            explained.captures_iter(page).filter_map(|found| Some(found.get(1)?.as_str())).collect();
        let mentioned = Regex::new(r"\b[GUCLP]\d{1,2}\b")?;
        for (path, text) in &self.0 {
            let documents = path.starts_with("crates/schema/tests/data");
            let prose = [".rs", ".lua", ".toml", ".md"].iter().any(|ending| path.ends_with(ending));
            if documents || !prose {
                continue;
            }
            // In source code only in comments: elsewhere a letter and a number may mean anything.
            for (number, line) in text.lines().enumerate() {
                let comment = !path.ends_with(".rs") || line.trim_start().starts_with("//");
                for found in mentioned.find_iter(line).filter(|_| comment) {
                    if !explained.contains(found.as_str()) {
                        problems.push(format!(
                            "{path}:{}: {} is not explained in {PAGE}",
                            number + 1,
                            found.as_str()
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Links between pages must have a target.
    fn check_links(&self, problems: &mut Vec<String>) -> Result<()> {
        let link = Regex::new(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")?;
        for (path, text) in self.with_ending(".md") {
            for found in link.captures_iter(text) {
                let target = &found[1];
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let folder = Path::new(path).parent().unwrap_or(Path::new(""));
                if !workspace().join(folder).join(target).exists() {
                    let at = found.get(0).map_or(0, |found| found.start());
                    problems.push(format!("{}: broken link to {target}", position(path, text, at)));
                }
            }
        }
        Ok(())
    }
}

/// Whether a file is part of the product, not of its tests.
fn is_product(path: &str) -> bool {
    path.starts_with("crates/")
        && path.contains("/src/")
        && !path.contains("tests")
        && !path.starts_with("crates/testkit/")
        && !path.starts_with("crates/fixtures/")
}

fn names(manifest: &toml::Table, kind: &str) -> Vec<String> {
    manifest
        .get(kind)
        .and_then(toml::Value::as_table)
        .map(|table| table.keys().cloned().collect())
        .unwrap_or_default()
}

fn position(path: &str, text: &str, at: usize) -> String {
    format!("{path}:{}", text[..at].lines().count().max(1))
}
