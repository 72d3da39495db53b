//! The real binary, as a person runs it.

mod program;
mod records;
mod schema;
mod serve;
