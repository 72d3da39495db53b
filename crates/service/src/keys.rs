//! The keys that belong to no single system.

hob_schema_macros::keys!("schemas/hob.toml");
