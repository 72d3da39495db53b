//! The house's own keys.

hob_schema_macros::keys!("schemas/hob.toml");
