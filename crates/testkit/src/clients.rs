//! Third-party clients, which `cargo xtask test` installs.

use std::env;
use std::path::PathBuf;

use crate::process::program;

/// A Python with redis-py, schemathesis and mypy.
pub fn python() -> PathBuf {
    installed("HOB_TEST_PYTHON", "python/bin/python", "a Python with redis-py and schemathesis")
}

/// Runs schemathesis on an API document: valid and invalid requests, at most `examples` per operation, with an admin
/// token. Panics with its report if a response is a server error or does not match the document.
pub async fn run_schemathesis(document_url: &str, token: &str, examples: u32, arguments: &[&str]) {
    let checks = "not_a_server_error,status_code_conformance,content_type_conformance,\
                  response_headers_conformance,response_schema_conformance";
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let mut schemathesis = tokio::process::Command::new(python().with_file_name("st"));
    schemathesis.current_dir(folder.path()).kill_on_drop(true);
    schemathesis.args(["run", document_url, "--checks", checks, "--phases", "examples,coverage,fuzzing"]);
    schemathesis.args(["--max-examples", &examples.to_string()]);
    schemathesis.args(["--header", &format!("Authorization: Bearer {token}")]);
    // The same requests each time, so that a failure can be reproduced.
    schemathesis.args(["--seed", "1", "--no-color", "--continue-on-failure"]).args(arguments);
    let report = schemathesis.output().await.unwrap_or_else(|error| panic!("schemathesis: {error}"));
    let text = String::from_utf8_lossy(&report.stdout);
    assert!(report.status.success(), "{text}");
    assert!(!text.contains("401 Unauthorized ("), "the token was refused: {text}");
}

/// A `node_modules` with ioredis, node-redis and TypeScript, for the `NODE_PATH` of `node`.
pub fn node_modules() -> PathBuf {
    installed("HOB_TEST_NODE_MODULES", "node/node_modules", "a node_modules with ioredis")
}

fn installed(variable: &str, folder: &str, what: &str) -> PathBuf {
    let path = env::var_os(variable).map_or_else(|| program::cache().join(folder), PathBuf::from);
    assert!(
        path.exists(),
        "{what} is missing at {}: run `cargo xtask test`, or set {variable}",
        path.display()
    );
    path
}
