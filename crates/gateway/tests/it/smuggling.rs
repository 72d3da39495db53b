//! Requests that servers and proxies read in different ways, sent as bytes. The upstream gets no request that the
//! gateway did not count, and every request in an unambiguous form.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use hob_testkit::LIMIT;

use crate::recorder::{Received, Recorder, exchange};
use crate::upstream::TestProxy;

/// Idle connections are closed soon, and requests that never end are, so that a client can read to the end. Not too soon:
/// on a busy machine the test may be suspended for seconds before a request is on its way to the upstream.
const CONFIG: &str =
    "count_loopback = true\nheader_timeout = \"8s\"\nresponse_timeout = \"10s\"\nretries = 0\n";

/// Sends each case on its own connection, with `PATH` replaced by its own path. Returns what the upstream got for
/// each case.
async fn replay(cases: &[(Vec<u8>, usize)]) -> Vec<Vec<Received>> {
    let upstream = Recorder::start().await;
    let proxy = TestProxy::start(&[upstream.address], CONFIG).await;
    let answers = join_all(cases.iter().map(|(bytes, _)| exchange(proxy.address, bytes))).await;
    assert_eq!(proxy.context.tasks.stop(LIMIT).await, Vec::<String>::new());
    let counted: BTreeMap<String, u64> = proxy
        .gateway
        .statistics()
        .endpoints()
        .await
        .unwrap()
        .into_iter()
        .map(|endpoint| (endpoint.name, endpoint.requests))
        .collect();
    let mut received = BTreeMap::<String, u64>::new();
    for request in upstream.received() {
        // The query is not a part of the endpoint.
        let target = request.target().split('?').next().unwrap_or_default();
        *received.entry(target.to_owned()).or_default() += 1;
    }
    for (target, requests) in &received {
        assert_eq!(counted.get(target), Some(requests), "{target}: the gateway counted {counted:?}");
    }
    let mut by_case = Vec::new();
    for (number, (bytes, expected)) in cases.iter().enumerate() {
        let path = format!("/case-{number}x");
        let of_case = |request: &Received| request.target().contains(&path);
        let requests: Vec<Received> = upstream.received().into_iter().filter(of_case).collect();
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(400)]);
        assert_eq!(requests.len(), *expected, "{text:?}\ngot {requests:?}\nanswer {:?}", answers[number]);
        by_case.push(requests);
    }
    let all: usize = by_case.iter().map(Vec::len).sum();
    assert_eq!(upstream.received().len(), all, "a request with an unexpected target: {received:?}");
    by_case
}

/// Replaces `PATH` in each case.
fn numbered(cases: &[(&str, usize)]) -> Vec<(Vec<u8>, usize)> {
    let fill = |(number, (text, expected)): (usize, &(&str, usize))| {
        (text.replace("PATH", &format!("/case-{number}x")).into_bytes(), *expected)
    };
    cases.iter().enumerate().map(fill).collect()
}

const BODY_LENGTH: &[(&str, usize)] = &[
    // Both lengths: the chunks count, and nothing after them belongs to the request.
    ("POST PATH HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nG", 1),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 6\r\n\r\n0\r\n\r\nG", 1),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!", 0),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello", 1),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ncontent-length: 5, 5\r\n\r\nhello", 0),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ncontent-length: +5\r\n\r\nhello", 0),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\nhello", 0),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ncontent-length: 0x5\r\n\r\nhello", 0),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ncontent-length: 5 5\r\n\r\nhello", 0),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ncontent-length:\r\n\r\nhello", 0),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999999999999\r\n\r\nhello", 0),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ncontent-length : 5\r\n\r\nhello", 0),
    ("POST PATH HTTP/1.1\r\nhost: a\r\nconnection: content-length\r\ncontent-length: 5\r\n\r\nhello", 1),
    ("GET PATH HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello", 1),
    ("GET PATH HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 1),
    ("HEAD PATH HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 1),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n", 1),
    ("POST PATH HTTP/1.1\r\nhost: a\r\n\r\n", 1),
    ("POST PATH HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\nhello", 1),
    // A body that looks like a request.
    (
        "POST PATH HTTP/1.1\r\nhost: a\r\ncontent-length: 43\r\n\r\nGET /hidden HTTP/1.1\r\nhost: a\r\nx: 12345\r\n\r\n",
        1,
    ),
    // A request that never ends.
    ("POST PATH HTTP/1.1\r\nhost: a\r\ncontent-length: 50\r\n\r\nGET /hidden HTTP/1.1\r\nhost: a\r\n\r\n", 0),
];

const TRANSFER_ENCODING: &[(&str, usize)] = &[
    ("POST PATH HTTP/1.1\r\nhost: a\r\ntransfer-encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 1),
    (
        "POST PATH HTTP/1.1\r\nhost: a\r\nconnection: transfer-encoding\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        1,
    ),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n", 0),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n", 0),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n", 0),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ntransfer-encoding: identity, chunked\r\n\r\n0\r\n\r\n", 0),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 0),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 0),
    (
        "POST PATH HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        0,
    ),
    (
        "POST PATH HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: gzip\r\n\r\n0\r\n\r\n",
        0,
    ),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ntransfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 0),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\n", 0),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ntransfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 0),
    ("POST PATH HTTP/1.1\r\nhost: a\r\nx: y\r\n\ttransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 0),
    ("POST PATH HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 0),
    ("POST PATH HTTP/1.1\r\nhost: a\r\ntransfer_encoding: chunked\r\ncontent-length: 5\r\n\r\nhello", 1),
];

/// What follows `transfer-encoding: chunked`.
const CHUNKS: &[(&str, usize)] = &[
    ("0\r\n\r\n", 1),
    ("000005\r\nhello\r\n0\r\n\r\n", 1),
    ("5;x=1\r\nhello\r\n0;y\r\n\r\n", 1),
    ("5;x=\"1\r\n\"\r\nhello\r\n0\r\n\r\n", 0),
    ("5;x\nhello\r\n0\r\n\r\n", 0),
    ("5\nhello\n0\n\n", 0),
    ("5\r\nhello0\r\n\r\n", 0),
    ("5\r\nhelloXX0\r\n\r\n", 0),
    ("5\r\nhello\n0\r\n\r\n", 0),
    ("-1\r\nhello\r\n0\r\n\r\n", 0),
    ("+5\r\nhello\r\n0\r\n\r\n", 0),
    ("0x5\r\nhello\r\n0\r\n\r\n", 0),
    ("5g\r\nhello\r\n0\r\n\r\n", 0),
    ("\r\nhello\r\n0\r\n\r\n", 0),
    ("FFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n", 0),
    ("FFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n", 0),
    ("0\r\nx-trailer: 1\r\n\r\n", 1),
    ("5\r\nhello\r\n0\r\nhost: b\r\ncontent-length: 50\r\ntransfer-encoding: gzip\r\n\r\n", 1),
    ("0\r\nnot a trailer\r\n\r\n", 0),
    // Pipelined: a second request, counted as such.
    ("0\r\n\r\nGET PATH HTTP/1.1\r\nhost: a\r\n\r\n", 2),
    ("5\r\nhello\r\n0\r\n\r\nGET PATH HTTP/1.1\r\nhost: a\r\n\r\nGET PATH HTTP/1.1\r\nhost: a\r\n\r\n", 3),
    ("5\r\nhello\r\n00\r\n\r\nG", 1),
];

const HEADS: &[(&str, usize)] = &[
    ("GET PATH HTTP/1.1\r\nhost: a\r\n\r\n", 1),
    ("\r\n\r\nGET PATH HTTP/1.1\r\nhost: a\r\n\r\n", 1),
    ("GET PATH HTTP/1.1\nhost: a\nx: y\n\n", 1),
    ("GET PATH HTTP/1.1\r\nhost: a\r\nx: 1\rGET /hidden HTTP/1.1\r\n\r\n", 0),
    ("GET PATH HTTP/1.1\r\nhost: a\r\nx: 1\0\r\n\r\n", 0),
    ("GET PATH HTTP/1.1\r\nhost: a\r\nx y: 1\r\n\r\n", 0),
    ("GET PATH HTTP/1.1\r\nhost: a\r\n: 1\r\n\r\n", 0),
    ("GET PATH HTTP/1.1\r\nhost: a\r\nno colon\r\n\r\n", 0),
    ("GET PATH HTTP/1.1\r\n host: a\r\n\r\n", 0),
    ("GET PATH HTTP/1.1\r\nhost: a\r\nx: 1\r\n 2\r\n\r\n", 0),
    ("GET PATH HTTP/1.1\r\nhost: a\r\nx: 1\r\nx: 2\r\nX: 3\r\n\r\n", 1),
    ("GET PATH HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 0),
    ("GET PATH HTTP/1.1\r\nhost: a\r\nconnection: host, close\r\n\r\n", 1),
    (
        "GET PATH HTTP/1.1\r\nhost: a\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\nconnection: upgrade, http2-settings\r\n\r\n",
        1,
    ),
    ("GET PATH HTTP/1.2\r\nhost: a\r\n\r\n", 0),
    ("GET PATH HTTP/2.0\r\nhost: a\r\n\r\n", 0),
    ("GET PATH http/1.1\r\nhost: a\r\n\r\n", 0),
    ("GET PATH\r\n\r\n", 0),
    ("GET PATH HTTP/1.0\r\n\r\n", 1),
    ("GET PATH /hidden HTTP/1.1\r\nhost: a\r\n\r\n", 0),
    ("GET\tPATH HTTP/1.1\r\nhost: a\r\n\r\n", 0),
    ("G@T PATH HTTP/1.1\r\nhost: a\r\n\r\n", 0),
    ("GET http://a:80PATH HTTP/1.1\r\nhost: a\r\n\r\n", 1),
    ("GET http://aPATH?q HTTP/1.1\r\nhost: a\r\n\r\n", 1),
    ("GET http://bPATH HTTP/1.1\r\nhost: a\r\n\r\n", 0),
    ("GET http://a@bPATH HTTP/1.1\r\nhost: b\r\n\r\n", 0),
    ("GET a:80 HTTP/1.1\r\nhost: a:80\r\nx: PATH\r\n\r\n", 0),
    ("CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\n\r\nGET PATH HTTP/1.1\r\nhost: a\r\n\r\n", 1),
    ("CONNECT PATH HTTP/1.1\r\nhost: a\r\n\r\n", 0),
    ("GET PATH HTTP/1.1\r\nhost: a\r\n\r\nGET PATH HTTP/1.1\r\nhost: a\r\n\r\n", 2),
    ("GET PATH HTTP/1.1\r\nhost: a\r\n\r\nGET PATHrefused HTTP/1.1\r\nx: no host\r\n\r\n", 1),
];

#[tokio::test]
async fn lengths_of_bodies_cannot_hide_requests() {
    let cases = numbered(BODY_LENGTH);
    for (requests, (bytes, _)) in replay(&cases).await.into_iter().zip(&cases) {
        let text = String::from_utf8_lossy(bytes);
        for request in requests {
            let expected = match text.split_once("\r\n\r\n").unwrap().1 {
                body if text.contains("chunked") && body.starts_with('0') => "",
                "5\r\nhello\r\n0\r\n\r\n" => "hello",
                body => body,
            };
            assert_eq!(String::from_utf8_lossy(&request.body), expected, "{text:?}");
        }
    }
}

#[tokio::test]
async fn other_transfer_codings_are_refused() {
    replay(&numbered(TRANSFER_ENCODING)).await;
}

#[tokio::test]
async fn invalid_chunks_do_not_arrive() {
    let head = "POST PATH HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    let texts: Vec<(String, usize)> =
        CHUNKS.iter().map(|(chunks, expected)| (format!("{head}{chunks}"), *expected)).collect();
    let cases: Vec<(&str, usize)> = texts.iter().map(|(text, expected)| (text.as_str(), *expected)).collect();
    for requests in replay(&numbered(&cases)).await {
        for request in requests {
            assert!(matches!(&request.body[..], b"" | b"hello"), "{request:?}");
            assert_eq!(request.header("x-trailer"), Vec::<&str>::new());
        }
    }
}

#[tokio::test]
async fn malformed_heads_do_not_arrive() {
    let mut cases: Vec<(String, usize)> =
        HEADS.iter().map(|(text, expected)| ((*text).to_owned(), *expected)).collect();
    let get = "GET PATH HTTP/1.1\r\nhost: a\r\n";
    cases.push((format!("{get}x: {}\r\n\r\n", "y".repeat(70_000)), 0));
    cases.push((format!("{get}{}\r\n", "x: y\r\n".repeat(200)), 0));
    cases.push((format!("{get}{}\r\n", "x: y\r\n".repeat(90)), 1));
    cases.push((format!("GET PATH{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(70_000)), 0));
    let cases: Vec<(&str, usize)> = cases.iter().map(|(text, expected)| (text.as_str(), *expected)).collect();
    replay(&numbered(&cases)).await;
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

/// An HTTP/2 connection with one request. Its headers are literals, which no library checks.
fn http2(headers: &[(&str, &str)], data: Option<&str>) -> Vec<u8> {
    let string = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let field = |(name, value): &(&str, &str)| [vec![0], string(name), string(value)].concat();
    let block: Vec<u8> = headers.iter().flat_map(field).collect();
    let (end_stream, end_headers) = (1, 4);
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    bytes.extend(frame(1, end_headers | if data.is_some() { 0 } else { end_stream }, 1, &block));
    if let Some(data) = data {
        bytes.extend(frame(0, end_stream, 1, data.as_bytes()));
    }
    bytes
}

#[tokio::test]
async fn malformed_http2_requests_do_not_arrive() {
    type Case = (&'static [(&'static str, &'static str)], Option<&'static str>, usize);
    /// Headers after `:method`, `:scheme`, `:path` and `:authority: a`.
    const MORE: &[Case] = &[
        (&[], None, 1),
        (&[("host", "a")], None, 1),
        (&[("host", "b")], None, 0),
        (&[("host", "a"), ("host", "b")], None, 0),
        (&[("transfer-encoding", "chunked")], Some("0\r\n\r\nGET /hidden HTTP/1.1\r\n\r\n"), 0),
        (&[("connection", "close")], None, 0),
        (&[("keep-alive", "1")], None, 0),
        (&[("upgrade", "h2c")], None, 0),
        (&[("te", "gzip")], None, 0),
        (&[("te", "trailers")], None, 1),
        (&[("X-Upper", "1")], None, 0),
        (&[("x", "1\r\nhost: b")], None, 0),
        (&[("x", "1\nGET /hidden HTTP/1.1")], None, 0),
        (&[("x", "1\0")], None, 0),
        (&[("x: 1\r\ny", "1")], None, 0),
        (&[("", "1")], None, 0),
        (&[("x", "1"), (":path", "/hidden")], None, 0),
        (&[(":path", "/hidden")], None, 0),
        (&[(":authority", "b")], None, 0),
        (&[(":unknown", "1")], None, 0),
        (&[(":status", "200")], None, 0),
        (&[(":protocol", "websocket")], None, 0),
        (&[("content-length", "5")], Some("hello"), 1),
        (&[], Some("hello"), 1),
        (&[("content-length", "5"), ("content-length", "5")], Some("hello"), 1),
        (&[("content-length", "0"), ("content-length", "50")], None, 0),
        (&[("content-length", "50")], None, 0),
        (&[("content-length", "50")], Some("hello"), 0),
        (&[("content-length", "4")], Some("hello"), 0),
        (&[("content-length", "0")], Some("GET /hidden HTTP/1.1\r\n\r\n"), 0),
        (&[("content-length", "x")], Some("hello"), 0),
        (&[("cookie", "a=1"), ("cookie", "b=2")], None, 1),
    ];
    let mut cases = Vec::new();
    for (more, data, expected) in MORE {
        let path = format!("/case-{}x", cases.len());
        let start = [(":method", "POST"), (":scheme", "http"), (":path", path.as_str()), (":authority", "a")];
        cases.push((http2(&[&start[..], more].concat(), *data), *expected));
    }
    // What replaces the method, the scheme, the path (after the case's own) and the authority.
    for (method, scheme, path, authority) in [
        ("GET /hidden HTTP/1.1\r\nx:", "http", "", "a"),
        ("get", "http", " HTTP/1.1\r\nhost: b", "a"),
        ("", "http", "", "a"),
        ("GET", "http", "\r\nx: 1", "a"),
        ("GET", "http", " x", "a"),
        ("GET", "http", "", "a b"),
        ("GET", "http", "", "a\r\nx: 1"),
        ("GET", "http", "", "user@a"),
        ("GET", "http", "", ""),
        ("GET", "http://b/", "", "a"),
        ("CONNECT", "http", "", "a"),
    ] {
        let path = format!("/case-{}x{path}", cases.len());
        let start = [(":method", method), (":scheme", scheme), (":path", &path), (":authority", authority)];
        cases.push((http2(&start, None), 0));
    }
    for headers in [
        &[(":method", "GET"), (":scheme", "http"), (":path", "/hidden")][..],
        &[(":method", "GET"), (":scheme", "http"), (":path", ""), (":authority", "a")],
        &[(":method", "GET"), (":scheme", "http"), (":path", "hidden"), (":authority", "a")],
        &[(":method", "GET"), (":scheme", "http"), (":authority", "a")],
        &[(":scheme", "http"), (":path", "/hidden"), (":authority", "a")],
        &[(":method", "CONNECT"), (":authority", "a:80")],
        &[
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "http"),
            (":path", "/hidden"),
            (":authority", "a"),
        ],
    ] {
        cases.push((http2(headers, None), 0));
    }
    for request in replay(&cases).await.concat() {
        assert!(matches!(&request.body[..], b"" | b"hello"), "{request:?}");
    }
}
