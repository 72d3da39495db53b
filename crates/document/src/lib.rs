//! Documents that users write: JSON, TOML and YAML.
//!
//! Every format is read by the parser that is made for it, first into a plain value and then into the wanted type, so
//! that a type is compiled once and not once per format. A mistake carries its line, its column and the path of its
//! field. Size, nesting and the expansion of YAML aliases are limited: reading a document takes time and memory in
//! proportion to its length.

mod document;
mod mistake;
mod outline;
mod value;

pub use document::{Document, Format};
pub use mistake::{Mistake, Position};
