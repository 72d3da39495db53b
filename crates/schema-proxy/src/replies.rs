//! Puts replies of the proxy into the stream of replies of the server, each in the place of its command.
//!
//! Replies are not counted: subscriptions, `MONITOR`, `CLIENT REPLY` and pushes would make that unreliable. Instead, the proxy
//! sends the server another command with a name that only the proxy knows, and replaces the reply that contains the name. For a
//! refused command that is an unknown command: the server replies with an error, and a transaction that contains it fails, as
//! it should. For a question that the proxy answers itself it is `ECHO`, which fails if the client may not ask anything.

use std::collections::VecDeque;

use memchr::memmem::Finder;
use memchr::{memchr, memrchr};

/// The number after the name of a marker, in hexadecimal digits.
const DIGITS: usize = 16;
/// An error of a server that names an unknown command is not longer.
const MAX_ERROR_BYTES: usize = 4 * 1024;
/// More markers must not wait for their replies: the proxy stops reading from the client.
pub(crate) const MAX_WAITING: usize = 10_000;

/// What the client gets instead of the server's reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Instead {
    /// This text, which is a whole reply.
    Text(String),
    /// The map of a Cluster, with the addresses of the proxy.
    Map(ClusterMap),
}

/// A form of the map of a Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClusterMap {
    Slots,
    Nodes,
}

/// The replies that have to be replaced, in the order of their commands.
#[derive(Debug)]
pub(crate) struct Markers {
    name: Finder<'static>,
    next: u64,
    waiting: VecDeque<(u64, Instead)>,
}

/// The start of the bytes from the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// So many bytes can be forwarded; the rest may be the start of a reply to a marker.
    Forward(usize),
    /// So many bytes can be forwarded; then the bytes up to the second position are replaced.
    Replace(usize, usize, Instead),
}

impl Markers {
    pub(crate) fn new() -> Markers {
        let name = format!("hob-schema-{:032x}-", rand::random::<u128>());
        Markers { name: Finder::new(name.as_bytes()).into_owned(), next: 0, waiting: VecDeque::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a reply; returns the command to send instead of the client's.
    pub(crate) fn add(&mut self, instead: Instead) -> Vec<u8> {
        let name = [self.name.needle(), format!("{:016x}", self.next).as_bytes()].concat();
        let head = match instead {
            Instead::Text(_) => "*1\r\n",
            Instead::Map(_) => "*2\r\n$4\r\nECHO\r\n",
        };
        self.waiting.push_back((self.next, instead));
        self.next += 1;
        [head.as_bytes(), format!("${}\r\n", name.len()).as_bytes(), &name, b"\r\n"].concat()
    }

    /// Looks for the reply to a marker.
    pub(crate) fn find(&mut self, bytes: &[u8]) -> Next {
        let Some(at) = self.name.find(bytes) else {
            return Next::Forward(self.sure(bytes));
        };
        let name_end = at + self.name.needle().len() + DIGITS;
        let line = memrchr(b'\n', &bytes[..at]).map_or(0, |before| before + 1);
        // An error names the command inside its line; the reply to ECHO is the name after a line with its length.
        let is_error = bytes[line] == b'-';
        let start = if is_error { line } else { at.saturating_sub(self.echo_head().len()) };
        let rest = bytes.get(name_end..).unwrap_or_default();
        let end =
            if is_error { memchr(b'\n', rest).map(|end| end + 1) } else { (rest.len() >= 2).then_some(2) };
        let Some(end) = end else { return Next::Forward(start) };
        match self.take(&bytes[name_end - DIGITS..name_end]) {
            Some(instead) => Next::Replace(start, name_end + end, instead),
            None => Next::Forward(name_end + end),
        }
    }

    /// The reply with this number. Replies before it will not come, because the client has turned replies off.
    fn take(&mut self, digits: &[u8]) -> Option<Instead> {
        let number = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        while self.waiting.front().is_some_and(|(waiting, _)| *waiting < number) {
            self.waiting.pop_front();
        }
        self.waiting.pop_front_if(|(waiting, _)| *waiting == number).map(|(_, instead)| instead)
    }

    fn echo_head(&self) -> String {
        format!("${}\r\n", self.name.needle().len() + DIGITS)
    }

    /// How many bytes are certainly not part of a reply to a marker. A complete reply ends with a line feed, and is never held
    /// back.
    fn sure(&self, bytes: &[u8]) -> usize {
        let line = memrchr(b'\n', bytes).map_or(0, |end| end + 1);
        let tail = &bytes[line..];
        if tail.first() == Some(&b'-') && tail.len() <= MAX_ERROR_BYTES {
            return line;
        }
        let echo = [self.echo_head().as_bytes(), self.name.needle()].concat();
        let partial =
            (1..=echo.len().min(bytes.len())).rev().find(|length| bytes.ends_with(&echo[..*length]));
        bytes.len() - partial.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the bytes in pieces; returns what the client gets.
    fn forwarded(markers: &mut Markers, bytes: &[u8], piece: usize) -> String {
        let (mut held, mut out) = (Vec::new(), Vec::new());
        for chunk in bytes.chunks(piece) {
            held.extend_from_slice(chunk);
            loop {
                match markers.find(&held) {
                    Next::Forward(sure) => {
                        out.extend(held.drain(..sure));
                        break;
                    }
                    Next::Replace(start, end, instead) => {
                        out.extend_from_slice(&held[..start]);
                        held.drain(..end);
                        let Instead::Text(text) = instead else {
                            out.extend_from_slice(b"*0\r\n");
                            continue;
                        };
                        out.extend_from_slice(text.as_bytes());
                    }
                }
            }
        }
        assert!(held.is_empty(), "{:?} is held back", String::from_utf8_lossy(&held));
        String::from_utf8(out).unwrap()
    }

    fn name(command: &[u8]) -> String {
        let text = std::str::from_utf8(command).unwrap();
        text.trim_end().rsplit("\r\n").next().unwrap().to_owned()
    }

    #[test]
    fn replies_to_markers_are_replaced_in_any_pieces() {
        for piece in 1..120 {
            let mut markers = Markers::new();
            let first = name(&markers.add(Instead::Text("-SCHEMA a\r\n".into())));
            let _suppressed = markers.add(Instead::Text("-SCHEMA b\r\n".into()));
            let second = name(&markers.add(Instead::Map(ClusterMap::Slots)));
            let third = name(&markers.add(Instead::Text("-SCHEMA c\r\n".into())));
            let bytes = format!(
                "+OK\r\n-ERR unknown command '{first}', with args beginning with: \r\n$3\r\n-a$\r\n-ERR no\r\n\
                 $60\r\n{second}\r\n:1\r\n-ERR unknown command `{third}`\r\n$-1\r\n"
            );
            let expected = "+OK\r\n-SCHEMA a\r\n$3\r\n-a$\r\n-ERR no\r\n*0\r\n:1\r\n-SCHEMA c\r\n$-1\r\n";
            assert_eq!(forwarded(&mut markers, bytes.as_bytes(), piece), expected, "{piece}");
            assert_eq!(markers.len(), 0);
        }
    }

    #[test]
    fn complete_reply_is_not_held_back() {
        let mut markers = Markers::new();
        markers.add(Instead::Text("-SCHEMA a\r\n".into()));
        for reply in ["+OK\r\n", "-ERR x\r\n", "$60\r\nx\r\n", "$1\r\n-\r\n"] {
            assert_eq!(markers.find(reply.as_bytes()), Next::Forward(reply.len()), "{reply}");
        }
        let long = [&b"$9000\r\n-"[..], &vec![b'x'; 8_000]].concat();
        assert_eq!(markers.find(&long), Next::Forward(long.len()), "a long value");
    }
}
