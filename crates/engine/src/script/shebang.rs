//! The first line of a script: `#!lua flags=no-writes,allow-oom`.

use hob_commands::inline_words;

use crate::command::printable;
use crate::reply::{CommandResult, Failure};

/// What a script declares about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Declared {
    /// It has no first line with flags. Its commands are checked one by one when the store is full.
    Nothing,
    /// It may write, and does not start when the store is full.
    Writes,
    /// It may write, even when the store is full.
    WritesWhenFull,
    /// It only reads.
    Reads,
}

/// What a script declares, and its body. The line itself is left out but its end is kept, so that errors have the right
/// line number.
pub(super) fn parse(script: &[u8]) -> CommandResult<(Declared, &[u8])> {
    if !script.starts_with(b"#!") {
        return Ok((Declared::Nothing, script));
    }
    let end = memchr::memchr(b'\n', script).ok_or(Failure::new("ERR Invalid script shebang"))?;
    let (line, body) = script.split_at(end);
    let words = inline_words(line).ok_or(Failure::new("ERR Invalid engine in script shebang"))?;
    let (engine, options) =
        words.split_first().ok_or(Failure::new("ERR Invalid engine in script shebang"))?;
    if engine != b"#!lua" {
        let engine = printable(engine, 128);
        return Err(format!("ERR Unexpected engine in script shebang: {engine}").into());
    }
    let (mut reads_only, mut runs_when_full) = (false, false);
    for option in options {
        let Some(flags) = option.strip_prefix(b"flags=") else {
            return Err(format!("ERR Unknown lua shebang option: {}", printable(option, 128)).into());
        };
        for flag in flags.split(|byte| *byte == b',').filter(|_| !flags.is_empty()) {
            match flag.trim_ascii() {
                b"no-writes" => reads_only = true,
                b"allow-oom" => runs_when_full = true,
                // These flags concern replicas and clusters, which the engine does not have.
                b"allow-stale" | b"no-cluster" | b"allow-cross-slot-keys" => {}
                _ => {
                    let flag = printable(flag, 128);
                    return Err(format!("ERR Unexpected flag in script shebang: {flag}").into());
                }
            }
        }
    }
    let declared = match (reads_only, runs_when_full) {
        (true, _) => Declared::Reads,
        (false, true) => Declared::WritesWhenFull,
        (false, false) => Declared::Writes,
    };
    Ok((declared, body))
}
