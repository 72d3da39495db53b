//! The schema language: parsing, linting, matching, and Hob's own schema files.

mod code;
mod contract;
mod diff;
mod fuzz;
mod json_schema;
mod language;
mod lint;
mod properties;

use std::path::PathBuf;

use hob_schema::Schema;

/// The schemas of the five services.
const SERVICES: [&str; 5] = ["gateway", "uptime", "chat", "load", "pipeline"];

fn schema_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../schemas").join(format!("{name}.toml"))
}

fn load_schema(name: &str) -> Schema {
    Schema::load(&schema_path(name)).unwrap_or_else(|errors| panic!("{errors}"))
}
