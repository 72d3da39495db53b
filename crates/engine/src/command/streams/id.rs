//! Ids of entries as clients write them.

use crate::number::read_int;
use crate::reply::{CommandResult, Failure};
use crate::store::StreamId;

const INVALID: Failure = Failure::new("ERR Invalid stream ID specified as stream command argument");
/// Longer than any id.
const MAX_LENGTH: usize = 127;

/// An id of which the client may have left the sequence number to the server.
#[derive(Clone, Copy)]
pub(super) enum NewId {
    Full(StreamId),
    Milliseconds(u64),
}

/// Parses `<ms>-<seq>` or `<ms>`, to which the given sequence number is added.
pub(super) fn parse_id(text: &[u8], missing_seq: u64) -> CommandResult<StreamId> {
    let (ms, seq) = split(text)?;
    let ms = number(ms).ok_or(INVALID)?;
    let seq = seq.map_or(Some(missing_seq), number).ok_or(INVALID)?;
    Ok(StreamId { ms, seq })
}

/// Like `parse_id`, but `-` is the smallest and `+` the greatest id.
pub(super) fn parse_id_or_limit(text: &[u8], missing_seq: u64) -> CommandResult<StreamId> {
    match c_string(text) {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        _ => parse_id(text, missing_seq),
    }
}

pub(super) fn parse_new_id(text: &[u8]) -> CommandResult<NewId> {
    match split(text)? {
        (ms, Some(b"*")) => Ok(NewId::Milliseconds(number(ms).ok_or(INVALID)?)),
        _ => parse_id(text, 0).map(NewId::Full),
    }
}

pub(super) fn parse_ids(words: &[&[u8]]) -> CommandResult<Vec<StreamId>> {
    words.iter().map(|word| parse_id(word, 0)).collect()
}

/// A range of ids, both included. The start may be after the end.
pub(super) struct Interval {
    pub(super) start: StreamId,
    pub(super) end: StreamId,
}

impl Interval {
    /// A bound after `(` is excluded.
    pub(super) fn parse(start: &[u8], end: &[u8]) -> CommandResult<Interval> {
        let start = parse_start(start)?;
        let end = match end {
            [b'(', end @ ..] if !end.is_empty() => {
                let before = parse_id(end, u64::MAX)?.previous();
                before.ok_or(Failure::new("ERR invalid end ID for the interval"))?
            }
            _ => parse_id_or_limit(end, u64::MAX)?,
        };
        Ok(Interval { start, end })
    }
}

/// The start of a range, included.
pub(super) fn parse_start(start: &[u8]) -> CommandResult<StreamId> {
    match start {
        [b'(', start @ ..] if !start.is_empty() => {
            let after = parse_id(start, 0)?.next();
            after.ok_or(Failure::new("ERR invalid start ID for the interval"))
        }
        _ => parse_id_or_limit(start, 0),
    }
}

fn split(text: &[u8]) -> CommandResult<(&[u8], Option<&[u8]>)> {
    if text.len() > MAX_LENGTH || matches!(c_string(text), b"-" | b"+") {
        return Err(INVALID);
    }
    let mut parts = c_string(text).splitn(2, |byte| *byte == b'-');
    Ok((parts.next().unwrap_or_default(), parts.next()))
}

/// Redis uses C strings here, which a NUL ends.
fn c_string(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// An unsigned integer. What is not a plain integer is read like C's `strtoull` does: with leading spaces and zeros, and
/// a sign.
fn number(text: &[u8]) -> Option<u64> {
    if let Some(number) = read_int(text) {
        return u64::try_from(number).ok();
    }
    let spaces = text.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0b).count();
    let (negative, digits) = match &text[spaces..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let magnitude: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(if negative { magnitude.wrapping_neg() } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_in_redis() {
        let id = |ms, seq| Some(StreamId { ms, seq });
        for (text, expected) in [
            ("1-2", id(1, 2)),
            ("1", id(1, 7)),
            ("007-01", id(7, 1)),
            (" 5-+3", id(5, 3)),
            ("18446744073709551615-18446744073709551615", id(u64::MAX, u64::MAX)),
            ("1--05", id(1, u64::MAX - 4)),
            ("18446744073709551616-0", None),
            ("1--5", None),
            ("1-2-3", None),
            ("1-", None),
            ("-1", None),
            ("-", None),
            ("+", None),
            ("", None),
            ("a-1", None),
            ("1-*", None),
        ] {
            assert_eq!(parse_id(text.as_bytes(), 7).ok(), expected, "{text:?}");
        }
    }
}
