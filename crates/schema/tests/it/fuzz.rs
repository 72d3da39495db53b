//! Mutated schema files, and files that are expensive to parse: each is accepted or rejected in bounded time and memory.

use hob_schema::Schema;
use hob_testkit::fuzz;

#[test]
fn mutated_schemas_are_read_within_limits() {
    let valid = [include_str!("../../../../schemas/load.toml"), include_str!("../../../../schemas/hob.toml")];
    assert!(valid.iter().all(|text| Schema::parse("t.toml", text).is_ok()));
    fuzz("fuzz::mutated_schemas_are_read_within_limits", &valid, |text| drop(Schema::parse("t.toml", text)));
}
