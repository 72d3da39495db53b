//! The generated files are up to date: `UPDATE_DOCS=1 cargo test -p hob-schema --test generated` rewrites them.

use std::path::{Path, PathBuf};

use hob_schema::lint::rules_markdown;
use hob_schema::{Schema, docs, json_schema};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn assert_up_to_date(path: &str, text: &str) {
    let file = root().join(path);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
    }
    let current = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        current == text,
        "{path} is out of date: UPDATE_DOCS=1 cargo test -p hob-schema --test generated"
    );
}

#[test]
fn schema_pages_are_up_to_date() {
    for name in ["hob", "gateway", "uptime", "chat", "load", "pipeline"] {
        let schema = Schema::load(&root().join(format!("schemas/{name}.toml"))).unwrap();
        assert_up_to_date(&format!("docs/schemas/{name}.md"), &docs::markdown(&schema));
    }
}

#[test]
fn lint_page_is_up_to_date() {
    assert_up_to_date("docs/schemas/lint.md", &rules_markdown());
}

#[test]
fn json_schema_is_up_to_date() {
    assert_up_to_date("schemas/hob-schema.json", &json_schema());
}
