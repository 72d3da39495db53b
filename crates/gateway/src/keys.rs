//! The gateway's Redis keys, generated from `schemas/gateway.toml`.

hob_schema_macros::keys!("schemas/gateway.toml");
