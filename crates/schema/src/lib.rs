//! Key schemas for Redis: one TOML file declares every key of a system. Typed keys, documentation and checks are made
//! from it.
//!
//! [`Schema::parse`] reads a file; a [`Keyspace`] builds the keys of a schema under a prefix and a layout; a [`Catalog`]
//! of several schemas finds the family of a key. `hob-schema-audit` checks a live Redis with it.
//!
//! ```
//! use hob_schema::{Catalog, Layout, Schema};
//!
//! let schema = Schema::parse("shop.toml", r#"
//!     [schema]
//!     name = "shop"
//!     version = 1
//!     prefix = "shop:"
//!     [ids]
//!     user = { max = 64 }
//!     [key.cart]
//!     pattern = "cart:<user>"
//!     type = "hash"
//!     fields = { items = "int" }
//!     ttl = { max = "1d" }
//!     max_keys = 10000
//!     purpose = "What a user is about to buy."
//! "#)?;
//! let catalog = Catalog::new(vec![schema], Layout::Plain)?;
//! let found = catalog.find(b"shop:cart:ann").unwrap();
//! assert_eq!((catalog.family(found.family).name.as_str(), &*found.ids[0]), ("cart", "ann"));
//! assert!(catalog.find(b"shop:basket:ann").is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod acl;
mod catalog;
pub mod check;
pub mod code;
pub mod diff;
pub mod docs;
pub mod examples;
mod json_schema;
mod keyspace;
pub mod lint;
mod model;
mod parse;
mod units;

pub use acl::acl;
pub use catalog::{Catalog, FamilyId, KeyConflict, KeyMatch};
pub use json_schema::json_schema;
pub use keyspace::{Keyspace, Layout, Shard};
pub use model::id::{IdError, IdForm, IdRule, LAST_UNIX_MS, RawChars, SEPARATOR, Without};
pub use model::pattern::{Pattern, Segment};
pub use model::value::{
    JsonForm, Member, Mismatch, Shape, Value, is_hyperloglog, is_iso8601, is_msgpack_container, is_rfc3339,
    quoted,
};
pub use model::{
    Allow, BadEnv, Channel, Content, EnvVar, Example, Family, Field, FieldName, KeyType, Limit, Prefix,
    Presence, Renewal, Role, Schema, StreamRules, Tag, Ttl, TtlRule,
};
pub use parse::snake;
pub use parse::source::{ParseError, ParseErrors, Position};
pub use units::{format_about, format_count, format_duration, format_size, parse_duration, parse_size};
