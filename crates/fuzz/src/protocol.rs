//! Protocols: RESP, HTTP responses, `traceparent`, frames of the chat.

use hob_chat::{ChannelName, FrameFormat};
use hob_engine::{ProtocolError, RequestParser};
use hob_load::generator::read_response;
use hob_schema_proxy::requests_in_pieces;
use hob_trace::TraceContext;

/// RESP in pieces of any size: the parser does not allocate for what a client only claims, and the pieces do not change what
/// it finds. The first byte is the size of the pieces.
pub fn request(data: &[u8]) {
    let Some((&size, bytes)) = data.split_first() else { return };
    assert_eq!(requests(bytes, usize::from(size).max(1)), requests(bytes, bytes.len().max(1)));
}

type Requests = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

fn requests(bytes: &[u8], piece: usize) -> Requests {
    let mut parser = RequestParser::new(1 << 16, 1 << 20);
    let (mut start, mut end, mut found) = (0, 0, Vec::new());
    loop {
        match parser.parse(&bytes[start..end]) {
            Ok(Some(length)) => {
                let words = parser.words(&bytes[start..end]);
                found.push(words.into_iter().map(<[u8]>::to_vec).collect());
                parser.done();
                start += length;
            }
            Ok(None) if end == bytes.len() => return (found, None),
            Ok(None) => end = (end + piece).min(bytes.len()),
            Err(error) => return (found, Some(error)),
        }
    }
}

/// Requests to the schema proxy in pieces of any size: the pieces do not change what it finds, and it finds only what a server
/// finds. The first byte is the size of the pieces.
pub fn proxy_request(data: &[u8]) {
    let Some((&size, bytes)) = data.split_first() else { return };
    let (found, failed) = requests_in_pieces(bytes, usize::from(size).max(1));
    assert_eq!(requests_in_pieces(bytes, bytes.len().max(1)), (found.clone(), failed));
    let (expected, _) = requests(bytes, bytes.len().max(1));
    let expected = expected.into_iter().filter(|words| !words.is_empty());
    found.iter().zip(expected).for_each(|(found, expected)| assert_eq!(*found, expected));
}

/// An HTTP response in pieces of any size: the pieces change neither its body nor where it ends. The first byte is the size of
/// the pieces.
pub fn http_response(data: &[u8]) {
    let Some((&size, bytes)) = data.split_first() else { return };
    let whole = read_response(bytes, bytes.len().max(1));
    assert_eq!(read_response(bytes, usize::from(size).max(1)), whole);
    if let Ok(Some(response)) = whole {
        assert!(response.len <= bytes.len() && response.body.len() < response.len);
    }
}

/// A `traceparent` is parsed or rejected. What is passed on is valid, and has the same ids.
pub fn traceparent(data: &[u8]) {
    let Some(Ok(context)) = crate::text(data).map(str::parse::<TraceContext>) else { return };
    let written = context.to_string();
    assert_eq!(written.parse(), Ok(context));
    assert_eq!(written.as_bytes()[3..52], data[3..52]);
}

/// A frame of a chat client is parsed or rejected, and the name of a channel is displayed as it was parsed.
pub fn chat_frame(data: &[u8]) {
    let _ = hob_chat::parse_frame(FrameFormat::Json, data);
    if let Some(text) = crate::text(data)
        && let Ok(name) = text.parse::<ChannelName>()
    {
        assert_eq!(name.to_string().parse(), Ok(name));
    }
}

/// A Protobuf frame of a chat client is rejected, or its commands are the same after being encoded and decoded again.
pub fn chat_protobuf(data: &[u8]) {
    let _ = hob_chat::parse_frame(FrameFormat::Protobuf, data);
}
