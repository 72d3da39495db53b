//! Invalid and malicious input.

use std::io::Write;

use hob_engine::{Config, Reply, RequestParser};
use proptest::prelude::*;

use crate::run;
use crate::server::{Server, ask};

#[test]
fn protocol_error_is_returned_and_closes_the_connection() {
    let server = Server::start(Config::default());
    for (bytes, answer) in [
        (&b"*1\r\n+PING\r\n"[..], "-ERR Protocol error: expected '$', got '+'\r\n"),
        (b"*99999999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\n$-5\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$999999999999\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"PING\r\n*1\r\n$x\r\n", "+PONG\r\n-ERR Protocol error: invalid bulk length\r\n"),
        (b"SET \"a\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
        (b"PING\r\nQUIT\r\nPING\r\n", "+PONG\r\n+OK\r\n"),
    ] {
        assert_eq!(server.read_until_closed(bytes), answer);
    }
}

#[test]
fn client_that_sends_http_is_disconnected() {
    let server = Server::start(Config::default());
    let post = b"POST / HTTP/1.1\r\nContent-Length: 20\r\n\r\nSET from-a-browser 1\r\n";
    assert_eq!(server.read_until_closed(post), "");
    let get = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nSET from-a-browser 1\r\n";
    assert_eq!(server.read_until_closed(get), "-ERR wrong number of arguments for 'get' command\r\n");
    assert_eq!(run(&server.engine, "EXISTS from-a-browser"), Reply::Int(0));
}

#[test]
fn incomplete_command_changes_nothing() {
    let server = Server::start(Config::default());
    let mut stream = server.connect();
    stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nhal").unwrap();
    drop(stream);
    let mut other = server.connect();
    assert_eq!(ask(&mut other, "EXISTS k", "\r\n"), ":0\r\n");
}

/// Bytes that resemble requests more often than random bytes do.
fn almost_valid_requests() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"*".to_vec()),
        Just(b"$".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".to_vec()),
        Just(b"\"".to_vec()),
        Just(b"'a\\x4".to_vec()),
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        (0u8..12).prop_map(|number| number.to_string().into_bytes()),
        proptest::collection::vec(any::<u8>(), 0..8),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The parser never panics, and its result does not depend on how the input is split.
    #[test]
    fn parser_accepts_any_bytes_in_any_pieces(bytes in almost_valid_requests(), piece in 1usize..20) {
        let found = |piece: usize| {
            let mut parser = RequestParser::new(1_000, 10_000);
            let (mut start, mut end, mut found) = (0, 0, Vec::new());
            loop {
                match parser.parse(&bytes[start..end]) {
                    Ok(Some(length)) => {
                        found.push(parser.words(&bytes[start..end]).concat());
                        parser.done();
                        start += length;
                    }
                    Ok(None) if end == bytes.len() => return (found, None),
                    Ok(None) => end = (end + piece).min(bytes.len()),
                    Err(error) => return (found, Some(error)),
                }
            }
        };
        prop_assert_eq!(found(piece), found(bytes.len().max(1)));
    }
}
