//! A client that returns replies unparsed, so that two servers can be compared byte for byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Frame {
    /// A line with its type byte: simple strings, errors, integers, doubles, nulls.
    Line(String),
    Bulk(Vec<u8>),
    /// An aggregate with its type byte: array, set, map (flat), push.
    List(char, Vec<Frame>),
}

impl Frame {
    pub(crate) fn int(&self) -> Option<i64> {
        match self {
            Frame::Line(line) => line.strip_prefix(':')?.parse().ok(),
            _ => None,
        }
    }

    pub(crate) fn items(&self) -> &[Frame] {
        match self {
            Frame::List(_, items) => items,
            _ => &[],
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self, Frame::Line(line) if line.starts_with('-'))
    }
}

pub(crate) struct Wire {
    reader: BufReader<TcpStream>,
}

impl Wire {
    pub(crate) fn connect(port: u16) -> Wire {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
        stream.set_nodelay(true).expect("a TCP stream");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a TCP stream");
        Wire { reader: BufReader::new(stream) }
    }

    pub(crate) fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Frame {
        self.send(words);
        self.read()
    }

    /// Whether the server has sent something.
    pub(crate) fn has_reply(&mut self) -> bool {
        let stream = self.reader.get_ref();
        stream.set_nonblocking(true).expect("a TCP stream");
        let has_reply = !self.reader.buffer().is_empty() || stream.peek(&mut [0]).is_ok();
        stream.set_nonblocking(false).expect("a TCP stream");
        has_reply
    }

    pub(crate) fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words.iter().map(AsRef::as_ref) {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.reader.get_mut().write_all(&bytes).expect("the server reads");
    }

    /// Sends commands and QUIT, and returns all bytes until the server closes the connection.
    pub(crate) fn read_until_closed<W: AsRef<[u8]>>(mut self, commands: &[Vec<W>]) -> Vec<u8> {
        commands.iter().for_each(|words| self.send(words));
        self.send(&["QUIT"]);
        let mut answers = Vec::new();
        self.reader.read_to_end(&mut answers).expect("the server closes the connection");
        answers
    }

    pub(crate) fn read(&mut self) -> Frame {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).expect("the server answers");
        assert!(line.ends_with(b"\r\n"), "the server closed the connection");
        let line = String::from_utf8_lossy(&line[..line.len() - 2]).into_owned();
        let count: i64 = line[1..].parse().unwrap_or(0);
        let type_byte = line.chars().next().expect("a line begins with a type byte");
        let mut read_items = |count: i64| (0..count).map(|_| self.read()).collect();
        match type_byte {
            '$' | '=' if count >= 0 => Frame::Bulk(self.read_bytes(count as usize)),
            '*' | '~' | '>' if count >= 0 => Frame::List(type_byte, read_items(count)),
            '%' => Frame::List(type_byte, read_items(count * 2)),
            _ => Frame::Line(line),
        }
    }

    fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count + 2];
        self.reader.read_exact(&mut bytes).expect("the server sends the announced number of bytes");
        bytes.truncate(count);
        bytes
    }
}
