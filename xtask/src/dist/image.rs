//! A container image as a tar archive: the OCI layout, and the file by which `docker load` finds the image.

use anyhow::Result;
use serde_json::{Value, json};

use super::archive::{Tree, gzip};
use super::files::{Files, IMAGE_USER};
use super::platform::Platform;
use super::{Release, sha256};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

pub(crate) fn image(release: &Release, platform: &Platform, files: &Files) -> Result<Vec<u8>> {
    let name = format!("hob:{}", release.version);
    let tar = files.image()?.tar(release.time)?;
    let mut layout = Layout::default();
    let layer = layout.blob(LAYER, gzip(&tar)?);
    let config = layout.blob(CONFIG, config(release, platform, &sha256(&tar)).to_string().into_bytes());
    let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer] });
    let mut manifest = layout.blob(MANIFEST, manifest.to_string().into_bytes());
    manifest["platform"] = json!({ "os": "linux", "architecture": platform.image });
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": release.version });
    layout.json("oci-layout", &json!({ "imageLayoutVersion": "1.0.0" }));
    layout.json("index.json", &json!({ "schemaVersion": 2, "manifests": [manifest] }));
    let docker = json!([{ "Config": path(&config), "RepoTags": [name], "Layers": [path(&layer)] }]);
    layout.json("manifest.json", &docker);
    layout.tree.tar(release.time)
}

/// How the image is run. `layer` is the checksum of the uncompressed layer.
fn config(release: &Release, platform: &Platform, layer: &str) -> Value {
    let check = ["CMD", "/usr/bin/hob", "uptime", "check", "http://127.0.0.1:7070/healthz"];
    json!({
        "created": format!("{}T00:00:00Z", release.date),
        "architecture": platform.image,
        "os": "linux",
        "config": {
            "User": format!("{IMAGE_USER}:{IMAGE_USER}"),
            "ExposedPorts": { "7070/tcp": {}, "7080/tcp": {} },
            "Env": ["PATH=/usr/bin", "HOB_CONFIG=/etc/hob/hob.toml", "HOB_SERVER_LISTEN=0.0.0.0:7070"],
            "Entrypoint": ["/usr/bin/hob"],
            "Cmd": ["serve"],
            "Volumes": { "/var/lib/hob": {} },
            "WorkingDir": "/var/lib/hob",
            "StopSignal": "SIGTERM",
            // Only Docker reads it. The times are in nanoseconds.
            "Healthcheck": { "Test": check, "Interval": 10_000_000_000_u64, "Timeout": 5_000_000_000_u64, "Retries": 3 },
            "Labels": {
                "org.opencontainers.image.title": "hob",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.revision": release.commit,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer}")] },
        "history": [{ "created": format!("{}T00:00:00Z", release.date), "created_by": "cargo xtask dist" }],
    })
}

/// The files of an image.
#[derive(Default)]
struct Layout {
    tree: Tree,
}

impl Layout {
    /// Adds content by its checksum; returns its descriptor.
    fn blob(&mut self, kind: &str, content: Vec<u8>) -> Value {
        let descriptor = json!({ "mediaType": kind, "digest": format!("sha256:{}", sha256(&content)), "size": content.len() });
        self.tree.file(&path(&descriptor), 0o644, content);
        descriptor
    }

    fn json(&mut self, path: &str, value: &Value) {
        self.tree.file(path, 0o644, value.to_string());
    }
}

/// The path of the content that a descriptor refers to.
fn path(descriptor: &Value) -> String {
    let digest = descriptor["digest"].as_str().expect("every descriptor has a digest");
    format!("blobs/{}", digest.replace(':', "/"))
}

#[cfg(test)]
mod tests {
    use super::super::platform::X86_64;
    use super::*;
    use std::collections::HashMap;
    use std::io::Read as _;

    /// Every reference leads to content with that checksum and size.
    #[test]
    fn descriptors_match_their_content() {
        let image = image(&Release::sample(), &X86_64, &Files::sample()).unwrap();
        let files: HashMap<String, Vec<u8>> = tar::Archive::new(&*image)
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let path = entry.path().unwrap().to_str().unwrap().to_owned();
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                (path, content)
            })
            .collect();
        let content = |descriptor: &Value| {
            let content = &files[&path(descriptor)];
            assert_eq!(descriptor["size"], content.len());
            assert_eq!(descriptor["digest"], format!("sha256:{}", sha256(content)));
            content
        };
        let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        let manifest: Value = serde_json::from_slice(content(&index["manifests"][0])).unwrap();
        let config: Value = serde_json::from_slice(content(&manifest["config"])).unwrap();
        let mut layer = Vec::new();
        flate2::read::GzDecoder::new(&**content(&manifest["layers"][0])).read_to_end(&mut layer).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", sha256(&layer)));
        assert_ne!(config["config"]["User"], "0");
        let docker: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        assert_eq!(docker[0]["Layers"][0], path(&manifest["layers"][0]));
    }
}
