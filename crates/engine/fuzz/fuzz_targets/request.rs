//! Any bytes, in pieces of any size: the parser must neither panic nor allocate for what a client only claims,
//! and the pieces must not change what it finds. The first byte chooses the size of the pieces.

#![no_main]

use hob_engine::{ProtocolError, RequestParser};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&size, bytes)) = data.split_first() else { return };
    assert_eq!(requests(bytes, usize::from(size).max(1)), requests(bytes, bytes.len().max(1)));
});

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
