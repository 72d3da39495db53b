//! Typed keys that all services share.

hob_schema_macros::keys!("schemas/hob.toml");
