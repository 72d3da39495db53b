//! Building blocks for small expressions that users write: a reader whose errors have a position, quoted strings,
//! templates, and paths into JSON documents.
//!
//! Expressions and the documents that they are applied to are untrusted, so everything is bounded: parsing takes time
//! proportional to the length, and a path visits every value of a document at most once.
//!
//! ```
//! use hob_expression::{JsonPath, Part, Reader, Template};
//!
//! let path = JsonPath::read(&mut Reader::new("$.items[*].id")).unwrap();
//! let document = serde_json::json!({"items": [{"id": 1}, {"id": 2}]});
//! assert_eq!(path.find(&document), [1, 2]);
//!
//! let names = ["user", "page"];
//! let index = |name: &str| names.iter().position(|known| *known == name).ok_or("unknown variable".to_owned());
//! let template = Template::parse("/list/${page}", index).unwrap();
//! assert!(matches!(template.parts(), [Part::Text(_), Part::Variable(1)]));
//! ```

mod json_path;
mod quoted;
mod reader;
mod template;

pub use json_path::{JsonPath, Step};
pub use quoted::Quoted;
pub use reader::{Mistake, Position, Reader};
pub use template::{Escape, Part, Template, unknown_variable};
