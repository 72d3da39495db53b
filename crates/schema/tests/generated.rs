//! Files that are made from the schemas are as the code would make them now.
//!
//! `UPDATE_DOCS=1 cargo test -p hob-schema --test generated` writes them again.

use std::path::{Path, PathBuf};

use hob_schema::lint::rules_markdown;
use hob_schema::{Schema, docs, json_schema};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn assert_fresh(path: &str, text: &str) {
    let file = root().join(path);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(kept == text, "{path} is stale: UPDATE_DOCS=1 cargo test -p hob-schema --test generated");
}

#[test]
fn the_pages_about_the_schemas_are_fresh() {
    for name in ["hob", "gateway", "uptime", "chat", "load", "pipeline"] {
        let schema = Schema::load(&root().join(format!("schemas/{name}.toml"))).unwrap();
        assert_fresh(&format!("docs/schemas/{name}.md"), &docs::markdown(&schema));
    }
}

#[test]
fn the_page_about_lint_rules_is_fresh() {
    assert_fresh("docs/schemas/lint.md", &rules_markdown());
}

#[test]
fn the_json_schema_is_fresh() {
    assert_fresh("schemas/hob-schema.json", &json_schema());
}
