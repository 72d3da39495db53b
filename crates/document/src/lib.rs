//! Documents that users write: JSON, TOML and YAML.
//!
//! A document is parsed into a JSON value first and then into the requested type, so that the code for a type is
//! compiled once and not once per format. An error has a line, a column and the path of the field. Size, nesting and
//! the expansion of YAML aliases are limited: reading a document takes time and memory proportional to its length.
//!
//! ```
//! use hob_document::{Document, Format};
//!
//! #[derive(serde::Deserialize)]
//! struct Garden {
//!     trees: u32,
//! }
//!
//! let read = |text| Document::parse(text, Format::Toml, 1024).and_then(|document| document.read::<Garden>());
//! assert_eq!(read("trees = 3").unwrap().trees, 3);
//! let mistake = read("# Mine\ntrees = 'many'").err().unwrap();
//! assert_eq!((mistake.at.line, mistake.field.as_str()), (2, "trees"));
//! ```

mod document;
mod mistake;
mod outline;
mod value;

pub use document::{Document, Format};
pub use mistake::{Mistake, Position};
