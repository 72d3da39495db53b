//! Parses optional arguments.

use super::Args;
use crate::engine::Core;
use crate::number::int;
use crate::reply::{CommandResult, Failure};

/// Iterates over the arguments after the fixed ones.
pub(super) struct Options<'a> {
    args: Args<'a>,
    at: usize,
}

impl<'a> Options<'a> {
    pub(super) fn after(args: Args<'a>, fixed: usize) -> Options<'a> {
        Options { args, at: fixed }
    }

    /// The next argument in lower case, for matching.
    pub(super) fn next_word(&mut self) -> Option<String> {
        let word = self.args.get(self.at)?;
        self.at += 1;
        Some(String::from_utf8_lossy(word).to_ascii_lowercase())
    }

    /// The value of an option.
    pub(super) fn value(&mut self) -> CommandResult<&'a [u8]> {
        let value = self.args.get(self.at).ok_or(Failure::SYNTAX)?;
        self.at += 1;
        Ok(value)
    }

    /// How many arguments are left.
    pub(super) fn left(&self) -> usize {
        self.args.len().saturating_sub(self.at)
    }

    pub(super) fn has_more(&self) -> bool {
        self.at < self.args.len()
    }

    /// The arguments that are left.
    pub(super) fn rest(&self) -> Args<'a> {
        &self.args[self.at..]
    }

    /// The last argument, as the client sent it.
    pub(super) fn last(&self) -> &'a [u8] {
        self.args[self.at - 1]
    }
}

/// Whether an argument is a flush mode. Both modes are the same here.
pub(super) fn is_flush_mode(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"sync") || word.eq_ignore_ascii_case(b"async")
}

/// A deadline in the options of a command: `EX 10`, `PXAT 1700000000000`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline<'a> {
    pub(super) text: &'a [u8],
    pub(super) unit_ms: i64,
    pub(super) absolute: bool,
}

impl<'a> Deadline<'a> {
    pub(super) fn from_option(word: &str, text: &'a [u8]) -> Option<Deadline<'a>> {
        let (unit_ms, absolute) = match word {
            "ex" => (1000, false),
            "px" => (1, false),
            "exat" => (1000, true),
            "pxat" => (1, true),
            _ => return None,
        };
        Some(Deadline { text, unit_ms, absolute })
    }

    /// Whether `word` may follow: the same kind of deadline may be repeated and replaces the first.
    pub(super) fn is_compatible(before: Option<Deadline<'_>>, word: &str) -> bool {
        let kind = |deadline: Deadline<'_>| (deadline.unit_ms, deadline.absolute);
        before.is_none_or(|before| Deadline::from_option(word, b"").map(kind) == Some(kind(before)))
    }

    /// In Unix milliseconds. Times that are not positive are refused.
    pub(super) fn resolve(self, core: &Core, command: &str) -> CommandResult<u64> {
        let given = int(self.text)?;
        let too_far = || Failure::expire_time(command);
        if given <= 0 {
            return Err(too_far());
        }
        let given_ms = given.checked_mul(self.unit_ms).ok_or_else(too_far)?;
        let base_ms = if self.absolute { 0 } else { core.keys.now_ms.cast_signed() };
        let deadline = given_ms.checked_add(base_ms).ok_or_else(too_far)?;
        Ok(deadline.unsigned_abs())
    }
}

/// Converts Redis's inclusive, possibly negative indexes to a range.
pub(super) fn index_range(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let len = len.cast_signed() as i64;
    let from_end = |index: i64| if index < 0 { index + len } else { index };
    let start = from_end(start).clamp(0, len);
    let stop = from_end(stop).clamp(-1, len - 1) + 1;
    let (start, stop) = (start as usize, stop as usize);
    start..stop.max(start)
}

#[cfg(test)]
mod tests {
    use super::index_range;

    #[test]
    fn indexes_count_from_either_end() {
        assert_eq!(index_range(0, -1, 5), 0..5);
        assert_eq!(index_range(-3, -2, 5), 2..4);
        assert_eq!(index_range(3, 1, 5), 3..3);
        assert_eq!(index_range(-100, 100, 5), 0..5);
        assert_eq!(index_range(5, 9, 5), 5..5);
        assert_eq!(index_range(0, -1, 0), 0..0);
        assert_eq!(index_range(i64::MIN, i64::MAX, 3), 0..3);
    }
}
