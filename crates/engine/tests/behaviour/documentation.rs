//! The page about the subset is generated from the command table.

use std::path::Path;

#[test]
fn documentation_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/engine.md");
    let page = hob_engine::documentation();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/engine.md is stale: UPDATE_DOCS=1 cargo test -p hob-engine documentation");
}
