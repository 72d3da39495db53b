//! Key schemas for Redis: one TOML file declares every key of a system, and code, documentation and
//! checks come from it.
//!
//! A [`Schema`] is read from a file with [`Schema::parse`]; a [`Keyspace`] builds its keys under a prefix and
//! a layout; a [`Catalog`] of several schemas tells which family a key belongs to.

mod acl;
mod catalog;
pub mod check;
pub mod docs;
mod id;
mod json_schema;
mod keyspace;
pub mod lint;
mod model;
mod overlap;
mod pattern;
mod read;
pub mod sample;
mod shape;
mod source;
mod units;

pub use acl::acl;
pub use catalog::{Catalog, Clash, FamilyId, Match};
pub use id::{Form, IdError, IdRule, LAST_UNIX_MS, Raw, SEPARATOR};
pub use json_schema::json_schema;
pub use keyspace::{Keyspace, Layout, Shard};
pub use model::{
    Allow, BadEnv, Channel, Content, EnvVar, Example, Family, Field, FieldName, Kind, Limit, Prefix,
    Presence, Renewal, Role, Schema, Tag, Ttl, TtlRule,
};
pub use pattern::{Pattern, Segment};
pub use read::snake;
pub use shape::{JsonForm, Member, Misfit, Shape, Value, is_iso8601, is_rfc3339, quoted};
pub use source::{Mistake, Mistakes, Place};
pub use units::{format_count, format_duration, format_size, parse_duration, parse_size};
