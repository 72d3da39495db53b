//! Clients that nobody here wrote, as installed by `cargo xtask test`.

use std::env;
use std::path::PathBuf;

use crate::process::program;

/// A Python with redis-py and schemathesis.
pub fn python() -> PathBuf {
    installed("HOB_TEST_PYTHON", "python/bin/python", "a Python with redis-py and schemathesis")
}

/// Has schemathesis make requests of all kinds from an API document, good and bad ones, `examples` of each operation
/// at most, all with a token that may do everything. Panics with its report if any answer is a failure of ours (500),
/// or is not what the document says.
pub async fn examine_api(document_url: &str, token: &str, examples: u32, arguments: &[&str]) {
    let checks = "not_a_server_error,status_code_conformance,content_type_conformance,\
                  response_headers_conformance,response_schema_conformance";
    let folder = tempfile::tempdir().expect("a folder");
    let mut examination = tokio::process::Command::new(python().with_file_name("st"));
    examination.current_dir(folder.path()).kill_on_drop(true);
    examination.args(["run", document_url, "--checks", checks, "--phases", "examples,coverage,fuzzing"]);
    examination.args(["--max-examples", &examples.to_string()]);
    examination.args(["--header", &format!("Authorization: Bearer {token}")]);
    // The same requests each time: what it finds can be found again.
    examination.args(["--seed", "1", "--no-color", "--continue-on-failure"]).args(arguments);
    let report = examination.output().await.unwrap_or_else(|error| panic!("schemathesis: {error}"));
    let text = String::from_utf8_lossy(&report.stdout);
    assert!(report.status.success(), "{text}");
    // A token that may do everything is still refused what is not for everybody, with 403.
    assert!(!text.contains("401 Unauthorized ("), "the token is not known: {text}");
}

/// A `node_modules` with ioredis and node-redis, to be given to `node` as `NODE_PATH`.
pub fn node_modules() -> PathBuf {
    installed("HOB_TEST_NODE_MODULES", "node/node_modules", "a node_modules with ioredis")
}

fn installed(variable: &str, place: &str, what: &str) -> PathBuf {
    let path = env::var_os(variable).map_or_else(|| program::store().join(place), PathBuf::from);
    assert!(
        path.exists(),
        "{what} is missing at {}: run `cargo xtask test`, or set {variable}",
        path.display()
    );
    path
}
