//! Finds the requests in the bytes of a client, without copying them.
//!
//! The proxy must see the same boundaries as the server behind it, because a command that only one of them sees would not
//! be checked. It therefore accepts only the spelling that clients use: a line ends with CR and LF, and a number has neither a
//! sign nor leading zeros. Everything else is a protocol error, even if some server would accept it.

use std::ops::Range;

use hob_commands::inline_words;
use smallvec::SmallVec;

/// Longer requests are judged by the words that fit, and are then streamed.
pub(crate) const MAX_JUDGED_BYTES: usize = 256 * 1024;
/// Maximum length of an inline command, as in Redis.
const MAX_INLINE_BYTES: usize = 64 * 1024;
/// Digits of the largest number that Redis accepts.
const MAX_DIGITS: usize = 10;

/// The words of a request. Those of most commands fit on the stack.
pub(crate) type Words<'a> = SmallVec<[&'a [u8]; 16]>;

/// Why a connection cannot be continued, with Redis's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ERR Protocol error: {0}")]
pub(crate) struct ProtocolError(&'static str);

/// The start of the bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// Not all of a request has arrived.
    Partial,
    /// A request of this length. [`Framer::words`] returns its words.
    Request(usize),
    /// A request that is longer than [`MAX_JUDGED_BYTES`]. [`Framer::words`] returns the words that have arrived, and
    /// [`Framer::stream`] finds its end.
    Long,
    /// A line of this length with these words.
    Inline(usize, Vec<Vec<u8>>),
    /// So many bytes without a command.
    Empty(usize),
}

/// Finds requests in a buffer that grows at its end. Keeps its position between calls.
#[derive(Debug, Default)]
pub(crate) struct Framer {
    at: usize,
    words_left: usize,
    /// The length of the current word, without the end of its line.
    word: Option<usize>,
    words: Vec<Range<usize>>,
    /// While a long request is streamed: how many bytes of the current word are still to come, with the end of its line.
    left: usize,
}

impl Framer {
    /// Looks at the start of `buffer`, which must start where it did at the last call that returned `Partial`.
    pub(crate) fn parse(&mut self, buffer: &[u8]) -> Result<Parsed, ProtocolError> {
        if self.at == 0 {
            match buffer.first() {
                None => return Ok(Parsed::Partial),
                Some(b'*') => {}
                Some(_) => return parse_inline(buffer),
            }
            let Some((count, at)) = number(buffer, 1, "invalid multibulk length")? else {
                return Ok(Parsed::Partial);
            };
            self.words.clear();
            // Redis ignores an array without words.
            let Some(count) = usize::try_from(count).ok().filter(|count| *count > 0) else {
                return Ok(Parsed::Empty(at));
            };
            (self.at, self.words_left) = (at, count);
        }
        while self.words_left > 0 {
            if self.word.is_none() {
                let Some((length, next)) = word_header(buffer, self.at)? else {
                    return Ok(partial(buffer));
                };
                (self.word, self.at) = (Some(length), next);
            }
            let length = self.word.unwrap_or_default();
            if buffer.len() < self.at + length + 2 {
                return Ok(partial(buffer));
            }
            self.words.push(self.at..self.at + length);
            self.at += length + 2;
            self.words_left -= 1;
            self.word = None;
        }
        Ok(Parsed::Request(std::mem::take(&mut self.at)))
    }

    /// The name of the command that was found.
    pub(crate) fn name<'a>(&self, buffer: &'a [u8]) -> Option<&'a [u8]> {
        buffer.get(self.words.first()?.clone())
    }

    /// The words of the request that was found, or those of a long one that have arrived.
    pub(crate) fn words<'a>(&self, buffer: &'a [u8]) -> Words<'a> {
        self.words.iter().map(|range| &buffer[range.clone()]).collect()
    }

    /// The length of the word of a long request that has arrived in part.
    pub(crate) fn long_word(&self) -> Option<usize> {
        self.word
    }

    /// How many bytes at the start of `buffer` belong to the request that was [`Long`](Parsed::Long), and whether it ends
    /// there. The caller drops these bytes, and calls again with those that follow until the request has ended.
    pub(crate) fn stream(&mut self, buffer: &[u8]) -> Result<(usize, bool), ProtocolError> {
        let mut at = std::mem::take(&mut self.at);
        if let Some(length) = self.word.take() {
            self.begin_word(length);
        }
        loop {
            let taken = self.left.min(buffer.len() - at);
            at += taken;
            self.left -= taken;
            if self.left > 0 || self.words_left == 0 {
                return Ok((at, self.left == 0));
            }
            let Some((length, next)) = word_header(buffer, at)? else {
                return Ok((at, false));
            };
            self.begin_word(length);
            at = next;
        }
    }

    fn begin_word(&mut self, length: usize) {
        self.left = length + 2;
        self.words_left -= 1;
    }
}

fn partial(buffer: &[u8]) -> Parsed {
    if buffer.len() >= MAX_JUDGED_BYTES { Parsed::Long } else { Parsed::Partial }
}

/// The length of the word whose header is at `at`, and where its bytes start.
fn word_header(buffer: &[u8], at: usize) -> Result<Option<(usize, usize)>, ProtocolError> {
    match buffer.get(at) {
        None => Ok(None),
        Some(b'$') => match number(buffer, at + 1, "invalid bulk length")? {
            None => Ok(None),
            Some((length, next)) => {
                let length = usize::try_from(length).map_err(|_| ProtocolError("invalid bulk length"))?;
                Ok(Some((length, next)))
            }
        },
        Some(_) => Err(ProtocolError("expected '$'")),
    }
}

/// The number on the line at `start`, and where the next line starts. Every command has several, most of them with one digit.
#[inline]
fn number(buffer: &[u8], start: usize, error: &'static str) -> Result<Option<(i64, usize)>, ProtocolError> {
    if let Some([digit @ b'0'..=b'9', b'\r', b'\n']) = buffer.get(start..start + 3) {
        return Ok(Some((i64::from(digit - b'0'), start + 3)));
    }
    let negative = buffer.get(start) == Some(&b'-');
    let first = start + usize::from(negative);
    let (mut at, mut value) = (first, 0_i64);
    let end = loop {
        match buffer.get(at) {
            None => return Ok(None),
            Some(digit @ b'0'..=b'9') if at - first < MAX_DIGITS => {
                value = value * 10 + i64::from(digit - b'0');
            }
            Some(other) => break *other,
        }
        at += 1;
    };
    let canonical = at - first == 1 || (at > first && buffer[first] != b'0');
    if !canonical || value > i64::from(i32::MAX) || end != b'\r' {
        return Err(ProtocolError(error));
    }
    match buffer.get(at + 1) {
        None => Ok(None),
        Some(b'\n') => Ok(Some((if negative { -value } else { value }, at + 2))),
        Some(_) => Err(ProtocolError(error)),
    }
}

fn parse_inline(buffer: &[u8]) -> Result<Parsed, ProtocolError> {
    let Some(end) = memchr::memchr(b'\n', &buffer[..buffer.len().min(MAX_INLINE_BYTES)]) else {
        let too_long = buffer.len() >= MAX_INLINE_BYTES;
        return if too_long { Err(ProtocolError("too big inline request")) } else { Ok(Parsed::Partial) };
    };
    let line = buffer[..end].strip_suffix(b"\r").unwrap_or(&buffer[..end]);
    let words = inline_words(line).ok_or(ProtocolError("unbalanced quotes in request"))?;
    Ok(if words.is_empty() { Parsed::Empty(end + 1) } else { Parsed::Inline(end + 1, words) })
}

/// See [`crate::requests_in_pieces`]. Requests that are too long to be judged are left out.
pub(crate) fn requests_in_pieces(bytes: &[u8], piece: usize) -> (Vec<Vec<Vec<u8>>>, bool) {
    let (mut framer, mut found) = (Framer::default(), Vec::new());
    let (mut start, mut end, mut streaming) = (0, 0, false);
    loop {
        let buffer = &bytes[start..end];
        let step = if streaming {
            framer.stream(buffer).map(|(taken, ended)| {
                streaming = !ended;
                start += taken;
                ended
            })
        } else {
            framer.parse(buffer).map(|parsed| {
                let length = match parsed {
                    Parsed::Partial => return false,
                    Parsed::Empty(length) => length,
                    Parsed::Inline(length, words) => {
                        found.push(words);
                        length
                    }
                    Parsed::Request(length) => {
                        found.push(framer.words(buffer).iter().map(|word| word.to_vec()).collect());
                        length
                    }
                    Parsed::Long => {
                        streaming = true;
                        0
                    }
                };
                start += length;
                true
            })
        };
        match step {
            Err(_) => return (found, true),
            Ok(true) => {}
            Ok(false) if end == bytes.len() => return (found, false),
            Ok(false) => end = (end + piece).min(bytes.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(words: &[&[u8]]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }

    #[test]
    fn request_is_found_in_any_pieces() {
        let bytes = request(&[b"SET", b"k", b"a\r\nbc"]);
        let mut framer = Framer::default();
        for end in 0..bytes.len() {
            assert_eq!(framer.parse(&bytes[..end]), Ok(Parsed::Partial), "{end}");
        }
        assert_eq!(framer.parse(&bytes), Ok(Parsed::Request(bytes.len())));
        assert_eq!(framer.words(&bytes).as_slice(), [&b"SET"[..], b"k", b"a\r\nbc"]);
        assert_eq!(framer.parse(b"*0\r\n"), Ok(Parsed::Empty(4)));
        assert_eq!(framer.parse(b"*-1\r\n"), Ok(Parsed::Empty(5)));
    }

    #[test]
    fn long_request_is_judged_by_what_has_arrived_and_streamed() {
        let value = vec![b'x'; 3 * MAX_JUDGED_BYTES];
        let bytes = [request(&[b"SET", b"k", &value, b"EX", b"10"]), request(&[b"PING"])].concat();
        for piece in [1_000, 64 * 1024, MAX_JUDGED_BYTES + 1] {
            let (mut framer, mut start, mut end) = (Framer::default(), 0, 0);
            while framer.parse(&bytes[start..end]) == Ok(Parsed::Partial) {
                end += piece;
            }
            assert_eq!(framer.parse(&bytes[..end]), Ok(Parsed::Long));
            assert_eq!(framer.words(&bytes[..end]).as_slice(), [&b"SET"[..], b"k"]);
            assert_eq!(framer.long_word(), Some(value.len()));
            loop {
                let (taken, ended) = framer.stream(&bytes[start..end]).unwrap();
                start += taken;
                if ended {
                    break;
                }
                end = (end + piece).min(bytes.len());
            }
            assert_eq!(framer.parse(&bytes[start..]), Ok(Parsed::Request(14)), "pieces of {piece}");
            assert_eq!(framer.words(&bytes[start..]).as_slice(), [b"PING"]);
        }
    }

    #[test]
    fn only_the_usual_spelling_is_accepted() {
        for bytes in [
            &b"*01\r\n"[..],
            b"*+1\r\n",
            b"*1 \r\n",
            b"*1\n",
            b"*1\r$4\r\nPING\r\n",
            b"*2147483648\r\n",
            b"*99999999999999999999",
            b"*00000000000000000000",
            b"*x",
            b"*\r\n",
            b"*-\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n+PING\r\n",
            b"*1\r\n$04\r\nPING\r\n",
            b"ECHO \"a\r\n",
            &[b'a'; MAX_INLINE_BYTES],
        ] {
            assert!(Framer::default().parse(bytes).is_err(), "{:?}", String::from_utf8_lossy(bytes));
        }
        let inline = Framer::default().parse(b"SET k 'a b'\r\nPING\r\n");
        assert_eq!(inline, Ok(Parsed::Inline(13, vec![b"SET".to_vec(), b"k".to_vec(), b"a b".to_vec()])));
        assert_eq!(Framer::default().parse(b"\r\n"), Ok(Parsed::Empty(2)));
    }
}
