//! Parses HTTP/1.1 responses: the head, and where the body ends.

use std::mem::MaybeUninit;

use crate::results::second::Fault;

const MAX_HEADERS: usize = 100;
pub(super) const MAX_HEAD_BYTES: usize = 64 << 10;
/// Of a body that is stored.
const MAX_BODY_BYTES: usize = 16 << 20;

/// The head of a response.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    /// In bytes.
    pub(super) len: usize,
    pub(super) framing: Framing,
    /// Whether the connection can be reused.
    pub(super) keep_alive: bool,
    /// Names and values of cookies; `None` deletes a cookie.
    pub(super) cookies: Vec<(String, Option<String>)>,
}

/// How the end of a body is found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked(ChunkState),
    UntilClose,
}

/// The position in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkState {
    Size {
        seen: u64,
        digits: u8,
    },
    /// After the size, up to the end of its line.
    Extension {
        size: u64,
    },
    Data {
        left: u64,
    },
    /// The line end after the data.
    DataEnd,
    /// The lines after the last chunk.
    Trailer {
        /// The length of the current line so far.
        len: u16,
    },
    Done,
}

/// The response to a HEAD request has no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Head,
    Other,
}

/// Parses a head; `None` while it is incomplete.
pub(super) fn parse_head(bytes: &[u8], kind: RequestKind) -> Result<Option<Head>, Fault> {
    let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    let parser = httparse::ParserConfig::default();
    let parsed = parser.parse_response_with_uninit_headers(&mut response, bytes, &mut headers);
    let len = match parsed {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD_BYTES => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(Fault::TooLarge),
        Err(_) => return Err(Fault::Protocol),
    };
    let status = response.code.ok_or(Fault::Protocol)?;
    let mut head = Head {
        status,
        len,
        framing: Framing::UntilClose,
        keep_alive: response.version == Some(1),
        cookies: Vec::new(),
    };
    let (mut length, mut chunked) = (None, false);
    for header in response.headers.iter() {
        // Comparing the length first rules out most headers without comparing their names.
        match header.name.len() {
            14 if header.name.eq_ignore_ascii_case("content-length") => {
                let value =
                    std::str::from_utf8(header.value).ok().and_then(|value| value.trim().parse().ok());
                length = Some(value.ok_or(Fault::Protocol)?);
            }
            17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                chunked = header.value.to_ascii_lowercase().ends_with(b"chunked");
            }
            10 if header.name.eq_ignore_ascii_case("connection") => {
                let value = header.value.to_ascii_lowercase();
                head.keep_alive = value != b"close" && (head.keep_alive || value == b"keep-alive");
            }
            10 if header.name.eq_ignore_ascii_case("set-cookie") => head.cookies.extend(cookie(header.value)),
            _ => {}
        }
    }
    let bodiless = kind == RequestKind::Head || matches!(status, 100..200 | 204 | 304);
    head.framing = match (bodiless, chunked, length) {
        (true, _, _) => Framing::Length(0),
        (_, true, _) => Framing::Chunked(ChunkState::Size { seen: 0, digits: 0 }),
        (_, _, Some(length)) => Framing::Length(length),
        _ => Framing::UntilClose,
    };
    head.keep_alive &= head.framing != Framing::UntilClose;
    Ok(Some(head))
}

/// A whole response, for tests and fuzzing.
#[doc(hidden)]
#[derive(Debug, PartialEq, Eq)]
pub struct WholeResponse {
    pub status: u16,
    pub body: Vec<u8>,
    /// The bytes of head and body.
    pub len: usize,
}

/// Reads a response that arrives in pieces of this size and ends when the connection is closed; `None` if the response
/// is incomplete.
#[doc(hidden)]
pub fn read_response(bytes: &[u8], piece: usize) -> Result<Option<WholeResponse>, Fault> {
    let ends = (0..bytes.len()).step_by(piece).map(|start| (start + piece).min(bytes.len()));
    let (mut head, mut at, mut body) = (None, 0, Vec::new());
    for end in ends {
        if head.is_none() {
            head = parse_head(&bytes[..end], RequestKind::Other)?;
            at = head.as_ref().map_or(0, |head| head.len);
        }
        if let Some(head) = &mut head {
            at += head.framing.feed(&bytes[at..end], Some(&mut body))?;
        }
    }
    let ended = head.filter(|head| head.framing.is_done() || head.framing == Framing::UntilClose);
    Ok(ended.map(|head| WholeResponse { status: head.status, body, len: at }))
}

/// `name=value; Max-Age=0`. Other attributes are ignored: a cookie is only sent to the server that set it.
fn cookie(value: &[u8]) -> Option<(String, Option<String>)> {
    let text = std::str::from_utf8(value).ok()?;
    let mut parts = text.split(';');
    let (name, value) = parts.next()?.split_once('=')?;
    let deleted = parts.any(|part| part.trim().eq_ignore_ascii_case("max-age=0"));
    Some((name.trim().to_owned(), (!deleted).then(|| value.trim().to_owned())))
}

impl Framing {
    /// Whether the body is complete.
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(ChunkState::Done))
    }

    /// Consumes bytes of the body and stores its content in `keep`; returns how many bytes belonged to the body.
    pub(super) fn feed(&mut self, bytes: &[u8], mut keep: Option<&mut Vec<u8>>) -> Result<usize, Fault> {
        match self {
            Self::Length(left) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                store(&mut keep, &bytes[..taken])?;
                *left -= taken as u64;
                Ok(taken)
            }
            Self::UntilClose => {
                store(&mut keep, bytes)?;
                Ok(bytes.len())
            }
            Self::Chunked(chunk) => {
                let mut at = 0;
                while at < bytes.len() && *chunk != ChunkState::Done {
                    at += chunk.feed(&bytes[at..], &mut keep)?;
                }
                Ok(at)
            }
        }
    }
}

fn store(keep: &mut Option<&mut Vec<u8>>, bytes: &[u8]) -> Result<(), Fault> {
    let Some(kept) = keep else { return Ok(()) };
    if kept.len() + bytes.len() > MAX_BODY_BYTES {
        return Err(Fault::TooLarge);
    }
    kept.extend_from_slice(bytes);
    Ok(())
}

impl ChunkState {
    /// Consumes at least one byte.
    fn feed(&mut self, bytes: &[u8], keep: &mut Option<&mut Vec<u8>>) -> Result<usize, Fault> {
        let byte = bytes[0];
        *self = match *self {
            Self::Size { seen, digits } => match (byte as char).to_digit(16) {
                Some(digit) if digits < 15 => {
                    Self::Size { seen: seen << 4 | u64::from(digit), digits: digits + 1 }
                }
                None if digits > 0 && byte == b'\n' => after_size(seen),
                None if digits > 0 => Self::Extension { size: seen },
                _ => return Err(Fault::Protocol),
            },
            Self::Extension { size } if byte == b'\n' => after_size(size),
            Self::Extension { size } => Self::Extension { size },
            Self::Data { left } => {
                let taken = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                store(keep, &bytes[..taken])?;
                let left = left - taken as u64;
                *self = if left == 0 { Self::DataEnd } else { Self::Data { left } };
                return Ok(taken);
            }
            Self::DataEnd if byte == b'\n' => Self::Size { seen: 0, digits: 0 },
            Self::DataEnd if byte == b'\r' => Self::DataEnd,
            Self::DataEnd => return Err(Fault::Protocol),
            Self::Trailer { len: 0 } if byte == b'\n' => Self::Done,
            Self::Trailer { .. } if byte == b'\n' => Self::Trailer { len: 0 },
            Self::Trailer { len } if byte == b'\r' => Self::Trailer { len },
            Self::Trailer { len } => Self::Trailer { len: len.saturating_add(1) },
            Self::Done => Self::Done,
        };
        Ok(1)
    }
}

fn after_size(size: u64) -> ChunkState {
    if size == 0 { ChunkState::Trailer { len: 0 } } else { ChunkState::Data { left: size } }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head(text: &str) -> Result<Option<Head>, Fault> {
        parse_head(text.as_bytes(), RequestKind::Other)
    }

    #[test]
    fn head_determines_the_end_of_the_body() {
        for (text, framing, keep_alive) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Framing::Length(5), true),
            ("HTTP/1.1 204 No Content\r\n\r\n", Framing::Length(0), true),
            ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n", Framing::Length(1), false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", Framing::Length(1), false),
            (
                "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\n",
                Framing::Length(1),
                true,
            ),
            ("HTTP/1.1 200 OK\r\n\r\n", Framing::UntilClose, false),
        ] {
            let head = head(text).unwrap().unwrap();
            assert_eq!(
                (head.framing, head.keep_alive, head.len),
                (framing, keep_alive, text.len()),
                "{text}"
            );
        }
        let length = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(parse_head(length, RequestKind::Head).unwrap().unwrap().framing, Framing::Length(0));
        assert!(head("HTTP/1.1 200 OK\r\nContent-Le").unwrap().is_none());
        assert_eq!(head("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n").unwrap_err(), Fault::Protocol);
        assert_eq!(head("SSH-2.0\r\n").unwrap_err(), Fault::Protocol);
    }

    #[test]
    fn cookies_are_set_and_deleted() {
        let head = head("HTTP/1.1 204 x\r\nSet-Cookie: a=1; Path=/\r\nset-cookie: b=2; Max-Age=0\r\n\r\n");
        let cookies = head.unwrap().unwrap().cookies;
        assert_eq!(cookies, [("a".to_owned(), Some("1".to_owned())), ("b".to_owned(), None)]);
    }

    /// Feeds a body in pieces of the same size.
    fn chunked(body: &[u8], piece: usize) -> Result<(Vec<u8>, usize, bool), Fault> {
        let mut framing = Framing::Chunked(ChunkState::Size { seen: 0, digits: 0 });
        let (mut kept, mut used) = (Vec::new(), 0);
        for piece in body.chunks(piece) {
            used += framing.feed(piece, Some(&mut kept))?;
        }
        Ok((kept, used, framing.is_done()))
    }

    #[test]
    fn chunked_body_is_read_in_pieces_of_any_size() {
        let body = b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nTrailer: 1\r\n\r\nNEXT";
        for piece in 1..=body.len() {
            assert_eq!(chunked(body, piece), Ok((b"hello world".to_vec(), body.len() - 4, true)), "{piece}");
        }
        assert!(chunked(b"zz\r\n", 9).is_err());
        assert!(chunked(b"5\r\nhelloX", 20).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_rejected(bytes in prop::collection::vec(any::<u8>(), 1..200)) {
            let _ = parse_head(&bytes, RequestKind::Other);
            let _ = chunked(&bytes, 7);
        }
    }
}
