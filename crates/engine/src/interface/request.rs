//! Parses requests: RESP arrays of bulk strings, and inline commands.

use std::ops::Range;

use hob_commands::inline_words;
use smallvec::SmallVec;

/// Longer lines are refused.
const MAX_LINE_BYTES: usize = 64 * 1024;
const MAX_WORDS: i64 = 1024 * 1024;
/// Limits before authentication.
const MAX_UNAUTHENTICATED_WORDS: i64 = 10;
const MAX_UNAUTHENTICATED_WORD_BYTES: i64 = 16 * 1024;

/// Why a connection is closed, with Redis's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ERR Protocol error: {0}")]
pub struct ProtocolError(String);

impl ProtocolError {
    fn new(text: impl Into<String>) -> ProtocolError {
        ProtocolError(text.into())
    }
}

/// Parses requests from a buffer that grows at its end.
///
/// It keeps its position between calls, so that a long request that arrives in many pieces is parsed once. It allocates
/// for arguments that have arrived, never for a count that a client sends.
#[derive(Debug)]
pub struct RequestParser {
    max_word: usize,
    max_request: usize,
    trusted: bool,
    at: usize,
    words_left: usize,
    pending_word: Option<usize>,
    words: Vec<Argument>,
}

#[derive(Debug)]
enum Argument {
    /// In the buffer.
    Buffered(Range<usize>),
    /// Written with quotes and escapes.
    Unescaped(Vec<u8>),
}

impl RequestParser {
    pub fn new(max_word: usize, max_request: usize) -> RequestParser {
        RequestParser {
            max_word,
            max_request,
            trusted: true,
            at: 0,
            words_left: 0,
            pending_word: None,
            words: Vec::new(),
        }
    }

    /// Whether the client is authenticated; otherwise only small requests are accepted.
    pub fn set_trusted(&mut self, trusted: bool) {
        self.trusted = trusted;
    }

    /// Looks for a complete request at the start of `buffer`, which must start where it did at the last call. Returns
    /// its length; then [`words`](Self::words) returns its arguments, if it has any, and the caller drops that many
    /// bytes and calls [`done`](Self::done).
    pub fn parse(&mut self, buffer: &[u8]) -> Result<Option<usize>, ProtocolError> {
        if self.at == 0 {
            match buffer.first() {
                None => return Ok(None),
                Some(b'*') => {}
                Some(_) => return self.parse_inline(buffer),
            }
            let Some((count, at)) = self.number_line(buffer, 1, "mbulk")? else {
                return Ok(None);
            };
            let count = count
                .filter(|count| *count <= MAX_WORDS)
                .ok_or_else(|| ProtocolError::new("invalid multibulk length"))?;
            if !self.trusted && count > MAX_UNAUTHENTICATED_WORDS {
                return Err(ProtocolError::new("unauthenticated multibulk length"));
            }
            self.at = at;
            self.words_left = usize::try_from(count).unwrap_or(0);
        }
        while self.words_left > 0 {
            if !self.parse_word(buffer)? {
                return Ok(None);
            }
        }
        Ok(Some(self.at))
    }

    /// The arguments of the request; those of most commands fit on the stack.
    pub fn words<'a>(&'a self, buffer: &'a [u8]) -> SmallVec<[&'a [u8]; 8]> {
        let bytes = |word: &'a Argument| match word {
            Argument::Buffered(range) => &buffer[range.clone()],
            Argument::Unescaped(bytes) => bytes,
        };
        self.words.iter().map(bytes).collect()
    }

    /// Prepares for the next request.
    pub fn done(&mut self) {
        self.at = 0;
        self.words.clear();
    }

    fn parse_word(&mut self, buffer: &[u8]) -> Result<bool, ProtocolError> {
        let length = match self.pending_word {
            Some(length) => length,
            None => {
                match buffer.get(self.at) {
                    None => return Ok(false),
                    Some(b'$') => {}
                    Some(&other) => {
                        let other = char::from(other).escape_default();
                        return Err(ProtocolError::new(format!("expected '$', got '{other}'")));
                    }
                }
                let Some((length, at)) = self.number_line(buffer, self.at + 1, "bulk")? else {
                    return Ok(false);
                };
                let length = length.filter(|length| (0..=self.max_word as i64).contains(length));
                let length = length.ok_or_else(|| ProtocolError::new("invalid bulk length"))?;
                if !self.trusted && length > MAX_UNAUTHENTICATED_WORD_BYTES {
                    return Err(ProtocolError::new("unauthenticated bulk length"));
                }
                self.at = at;
                self.pending_word = Some(length as usize);
                length as usize
            }
        };
        if self.at + length > self.max_request {
            return Err(ProtocolError::new("too big request"));
        }
        if buffer.len() < self.at + length + 2 {
            return Ok(false);
        }
        self.words.push(Argument::Buffered(self.at..self.at + length));
        self.at += length + 2;
        self.words_left -= 1;
        self.pending_word = None;
        Ok(true)
    }

    /// The number on the line at `start`, and where the next line starts.
    fn number_line(
        &self,
        buffer: &[u8],
        start: usize,
        what: &str,
    ) -> Result<Option<(Option<i64>, usize)>, ProtocolError> {
        // Most numbers have one or two digits.
        match buffer.get(start..).unwrap_or_default() {
            [one @ b'0'..=b'9', b'\r', _, ..] => return Ok(Some((Some((one - b'0').into()), start + 3))),
            [ten @ b'1'..=b'9', one @ b'0'..=b'9', b'\r', _, ..] => {
                return Ok(Some((Some(i64::from(ten - b'0') * 10 + i64::from(one - b'0')), start + 4)));
            }
            _ => {}
        }
        let Some(length) = memchr::memchr(b'\r', &buffer[start.min(buffer.len())..]) else {
            if buffer.len() - start.min(buffer.len()) > MAX_LINE_BYTES {
                return Err(ProtocolError::new(format!("too big {what} count string")));
            }
            return Ok(None);
        };
        let end = start + length;
        if buffer.len() < end + 2 {
            return Ok(None);
        }
        Ok(Some((crate::number::read_int(&buffer[start..end]), end + 2)))
    }

    fn parse_inline(&mut self, buffer: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let Some(end) = memchr::memchr(b'\n', &buffer[..buffer.len().min(MAX_LINE_BYTES + 1)]) else {
            if buffer.len() > MAX_LINE_BYTES {
                return Err(ProtocolError::new("too big inline request"));
            }
            return Ok(None);
        };
        let line = buffer[..end].strip_suffix(b"\r").unwrap_or(&buffer[..end]);
        let words = inline_words(line).ok_or_else(|| ProtocolError::new("unbalanced quotes in request"))?;
        self.words = words.into_iter().map(Argument::Unescaped).collect();
        Ok(Some(end + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Found = Option<(usize, Vec<Vec<u8>>)>;

    fn parse(bytes: &[u8]) -> Result<Found, ProtocolError> {
        let mut parser = RequestParser::new(1024, 4096);
        let length = parser.parse(bytes)?;
        Ok(length.map(|length| (length, parser.words(bytes).into_iter().map(<[u8]>::to_vec).collect())))
    }

    fn words(bytes: &[u8]) -> Vec<String> {
        let (_, words) = parse(bytes).unwrap().unwrap();
        words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
    }

    #[test]
    fn requests_are_parsed_from_any_pieces() {
        let bytes = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\na\r\nbc\r\nPING\r\n";
        let mut parser = RequestParser::new(1024, 4096);
        for end in 0..34 {
            let whole = parser.parse(&bytes[..end]).unwrap();
            assert_eq!(whole, (end >= 31).then_some(31), "{end}");
        }
        assert_eq!(parser.words(bytes).as_slice(), [&b"SET"[..], b"k", b"a\r\nbc"]);
    }

    #[test]
    fn inline_commands_may_be_quoted() {
        assert_eq!(words(b"SET  k \"a b\\n\\x41\"\r\n"), ["SET", "k", "a b\nA"]);
        assert_eq!(words(b"ECHO 'it\\'s'\n"), ["ECHO", "it's"]);
        assert_eq!(words(b"\r\n"), Vec::<String>::new());
        assert_eq!(
            parse(b"ECHO \"a\r\n").unwrap_err().to_string(),
            "ERR Protocol error: unbalanced quotes in request"
        );
        assert!(parse(b"ECHO \"a\"b\r\n").is_err());
    }

    #[test]
    fn hostile_lengths_are_refused() {
        for (bytes, text) in [
            (&b"*1048577\r\n"[..], "invalid multibulk length"),
            (b"*x\r\n", "invalid multibulk length"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$1025\r\n", "invalid bulk length"),
            (b"*1\r\n+x\r\n", "expected '$', got '+'"),
        ] {
            assert_eq!(parse(bytes).unwrap_err(), ProtocolError::new(text));
        }
        assert!(parse(&vec![b'a'; MAX_LINE_BYTES + 1]).is_err());
        assert!(parse(&[&b"*"[..], &vec![b'1'; MAX_LINE_BYTES + 2]].concat()).is_err());
        assert_eq!(parse(b"*-5\r\n").unwrap(), Some((5, vec![])));
    }

    #[test]
    fn unauthenticated_clients_may_send_little() {
        let mut parser = RequestParser::new(1 << 20, 1 << 20);
        parser.set_trusted(false);
        assert!(parser.parse(b"*11\r\n").is_err());
        let mut parser = RequestParser::new(1 << 20, 1 << 20);
        parser.set_trusted(false);
        assert!(parser.parse(b"*1\r\n$16385\r\n").is_err());
    }
}
