//! Replaces the addresses in `MOVED` and `ASK` errors of a Cluster by addresses of the proxy.

use memchr::memchr;

/// A longer line is not a redirect.
const MAX_LINE_BYTES: usize = 1024;

/// Follows the replies of a server. Only lines have to be found: an array is a line with a count and further replies, and a
/// bulk string is a line with a length and bytes to skip.
#[derive(Debug, Default)]
pub(crate) struct Redirects {
    /// Bytes of a bulk string that are still to come, with the end of its line.
    bulk_left: usize,
    /// The start of a line that has not arrived as a whole.
    line: Vec<u8>,
    /// The rest of a long line is not looked at.
    in_long_line: bool,
}

impl Redirects {
    /// Appends the bytes to `out`, with the addresses that `address` returns for `host:port`.
    pub(crate) fn rewrite(
        &mut self,
        mut bytes: &[u8],
        out: &mut Vec<u8>,
        address: impl Fn(&str) -> Option<String>,
    ) {
        while !bytes.is_empty() {
            if self.bulk_left > 0 {
                let (bulk, rest) = bytes.split_at(self.bulk_left.min(bytes.len()));
                out.extend_from_slice(bulk);
                self.bulk_left -= bulk.len();
                bytes = rest;
                continue;
            }
            let end = memchr(b'\n', bytes).map(|end| end + 1);
            let (line, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            bytes = rest;
            if self.in_long_line {
                out.extend_from_slice(line);
                self.in_long_line = end.is_none();
                continue;
            }
            self.line.extend_from_slice(line);
            if end.is_some() {
                self.end_line(out, &address);
            } else if self.line.len() > MAX_LINE_BYTES {
                out.append(&mut self.line);
                self.in_long_line = true;
            }
        }
    }

    fn end_line(&mut self, out: &mut Vec<u8>, address: &impl Fn(&str) -> Option<String>) {
        let line = std::mem::take(&mut self.line);
        let text = std::str::from_utf8(&line).unwrap_or_default().trim_end();
        if let Some(length) = text.strip_prefix(['$', '=', '!']) {
            // Nil has the length -1 and no bytes.
            self.bulk_left = length.parse::<usize>().map_or(0, |length| length + 2);
        }
        match redirected(text, address) {
            Some(redirect) => out.extend_from_slice(redirect.as_bytes()),
            None => out.extend_from_slice(&line),
        }
        self.line = line;
        self.line.clear();
    }
}

/// `-MOVED 3999 host:port` with another address.
fn redirected(line: &str, address: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let (kind, rest) = line.strip_prefix('-')?.split_once(' ')?;
    if !matches!(kind, "MOVED" | "ASK") {
        return None;
    }
    let (slot, host) = rest.split_once(' ')?;
    Some(format!("-{kind} {slot} {}\r\n", address(host)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_are_rewritten_in_any_pieces() {
        let long = "x".repeat(3_000);
        let bytes = format!(
            "*2\r\n-MOVED 3999 10.0.0.1:7001\r\n$27\r\nx\r\n-MOVED 1 10.0.0.1:7001\r\n\r\n$-1\r\n+{long}\r\n\
             -ASK 5 :7002\r\n-MOVED 7 elsewhere:1\r\n-ERR MOVED 1 10.0.0.1:7001\r\n:3\r\n"
        );
        let expected = bytes
            .replacen("-MOVED 3999 10.0.0.1:7001", "-MOVED 3999 127.0.0.1:1", 1)
            .replace("-ASK 5 :7002", "-ASK 5 127.0.0.1:2");
        let address = |host: &str| match host {
            "10.0.0.1:7001" => Some("127.0.0.1:1".to_owned()),
            ":7002" => Some("127.0.0.1:2".to_owned()),
            _ => None,
        };
        for piece in 1..200 {
            let (mut redirects, mut out) = (Redirects::default(), Vec::new());
            for chunk in bytes.as_bytes().chunks(piece) {
                redirects.rewrite(chunk, &mut out, address);
            }
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{piece}");
        }
    }
}
