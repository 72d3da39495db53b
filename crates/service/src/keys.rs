//! Typed keys that are not of a single service.

hob_schema_macros::keys!("schemas/hob.toml");
