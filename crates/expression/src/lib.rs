//! Building blocks for small expressions that users write: a reader whose errors have a position, quoted strings,
//! templates, and paths into JSON documents.
//!
//! Expressions and the documents that they are applied to are untrusted, so everything is bounded: parsing takes time
//! proportional to the length, and a path visits every value of a document at most once.

mod json_path;
mod quoted;
mod reader;
mod template;

pub use json_path::{JsonPath, Step};
pub use quoted::Quoted;
pub use reader::{Mistake, Position, Reader};
pub use template::{Escape, Part, Template, unknown_variable};
