//! What the parsers of Hob guarantee for any input. One function per parser; each panics if its guarantee does not hold.
//!
//! `cargo xtask fuzz` runs them with libFuzzer on the seeds in `fuzz/seeds`; the tests of this crate run them on changed
//! seeds. A new function needs a file in `fuzz/src/bin`, a folder with seeds and its name in `tests/targets.rs`; a test checks
//! it.

mod binary;
mod language;
mod plan;
mod protocol;
mod script;

pub use binary::{cursor, histogram};
pub use language::{assertion, document, expression};
pub use plan::{load_plan, pipeline_plan, schema};
pub use protocol::{chat_frame, chat_protobuf, http_response, proxy_request, request, traceparent};
pub use script::lua_library;

/// The input of a parser of text; bytes that are not UTF-8 are refused before they get there.
fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}
