//! The keys of pipelines, typed, from their schema.

hob_schema_macros::keys!("schemas/pipeline.toml");
