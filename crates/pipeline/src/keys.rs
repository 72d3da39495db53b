//! Typed keys, generated from the schema file.

hob_schema_macros::keys!("schemas/pipeline.toml");
