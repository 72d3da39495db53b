//! The real binary, as a person runs it.

mod program;
mod schema;
mod serve;
