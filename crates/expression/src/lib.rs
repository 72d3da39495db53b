//! What users write in small expressions, and what all of those have in common: a reader that goes from left to right
//! and tells a mistake with its place, texts in quotes, and paths into JSON documents.
//!
//! Users write them and targets that nobody trusts are measured by them, so everything here is bounded: reading one
//! takes time in proportion to its length, and a path visits every value of a document once at most.

mod json_path;
mod quoted;
mod reader;

pub use json_path::{JsonPath, Step};
pub use quoted::Quoted;
pub use reader::{Mistake, Place, Reader};
