//! The list of crates in the program, in the format of CycloneDX.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::platform::Platform;
use super::{Release, output, sha256};
use crate::cargo;

/// What `cargo metadata` prints.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    description: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// `None` if it is needed to run, and not only to build or to test.
    kind: Option<String>,
}

pub(crate) fn sbom(release: &Release, platform: &Platform) -> Result<Vec<u8>> {
    let mut metadata = cargo();
    metadata.args(["metadata", "--locked", "--format-version", "1", "--filter-platform", platform.target]);
    let metadata = serde_json::from_str(&output(&mut metadata)?).context("cargo metadata")?;
    let document = document(release, &metadata)?;
    Ok(serde_json::to_vec_pretty(&document)?)
}

fn document(release: &Release, metadata: &Metadata) -> Result<Value> {
    let packages: BTreeMap<&str, &Package> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let program = metadata.packages.iter().find(|package| package.name == "hob").context("no package hob")?;
    let graph = needed_to_run(&metadata.resolve, &program.id);
    let reference = |id: &str| purl(packages[id]);
    let mut components: Vec<Value> =
        graph.keys().filter(|id| **id != program.id).map(|id| component(packages[id], "library")).collect();
    components.sort_by_key(|component| component["purl"].to_string());
    let mut dependencies: Vec<Value> = graph
        .iter()
        .map(|(id, needs)| {
            let needs: BTreeSet<String> = needs.iter().map(|need| reference(need)).collect();
            json!({ "ref": reference(id), "dependsOn": needs })
        })
        .collect();
    dependencies.sort_by_key(|dependency| dependency["ref"].to_string());
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": serial_number(release),
        "version": 1,
        "metadata": {
            "timestamp": format!("{}T00:00:00Z", release.date),
            "component": component(program, "application"),
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// The packages that `root` needs, directly and indirectly, each with its own needs.
fn needed_to_run<'a>(resolve: &'a Resolve, root: &'a str) -> BTreeMap<&'a str, Vec<&'a str>> {
    let nodes: BTreeMap<&str, &Node> = resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let mut graph = BTreeMap::new();
    let mut open = vec![root];
    while let Some(id) = open.pop() {
        if graph.contains_key(id) {
            continue;
        }
        let to_run = |need: &&Dependency| need.dep_kinds.iter().any(|kind| kind.kind.is_none());
        let needs: Vec<&str> = nodes[id].deps.iter().filter(to_run).map(|need| need.pkg.as_str()).collect();
        open.extend(&needs);
        graph.insert(id, needs);
    }
    graph
}

fn component(package: &Package, kind: &str) -> Value {
    let mut component = json!({
        "type": kind,
        "bom-ref": purl(package),
        "name": package.name,
        "version": package.version,
        "purl": purl(package),
    });
    if let Some(description) = &package.description {
        component["description"] = json!(description.trim());
    }
    if let Some(license) = &package.license {
        // An old form of OR that is not valid SPDX.
        component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
    }
    component
}

fn purl(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

/// A UUID that depends only on the release.
fn serial_number(release: &Release) -> String {
    let hash = sha256(release.build().as_bytes());
    format!(
        "urn:uuid:{}-{}-8{}-8{}-{}",
        &hash[..8],
        &hash[8..12],
        &hash[12..15],
        &hash[15..18],
        &hash[18..30]
    )
}

#[cfg(test)]
mod tests {
    use super::super::platform::X86_64;
    use super::*;

    #[test]
    fn document_has_what_runs_and_not_what_tests() {
        let document: Value = serde_json::from_slice(&sbom(&Release::sample(), &X86_64).unwrap()).unwrap();
        let names: BTreeSet<&str> = document["components"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        for name in ["hob-store", "hob-engine", "tokio", "rustls", "ring"] {
            assert!(names.contains(name), "{name} is missing");
        }
        for name in ["hob", "hob-testkit", "proptest"] {
            assert!(!names.contains(name), "{name} does not run");
        }
        let references: BTreeSet<&str> = document["dependencies"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["ref"].as_str().unwrap())
            .collect();
        assert_eq!(references.len(), names.len().max(document["components"].as_array().unwrap().len()) + 1);
    }
}
