//! The gateway's keys, made from `schemas/gateway.toml`.

hob_schema_macros::keys!("schemas/gateway.toml");
