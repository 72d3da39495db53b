//! The keys of the gateway, generated from `schemas/gateway.toml`. Limits are in its keys, so that all programs with one Redis
//! share them.

hob_schema_macros::keys!("schemas/gateway.toml");
