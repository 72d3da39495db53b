//! Replies as bytes, in RESP2 or RESP3.

use crate::number::write_float;
use crate::reply::Reply;
use crate::session::Protocol;

pub(super) fn encode(reply: &Reply, protocol: Protocol, out: &mut Vec<u8>) {
    let resp3 = protocol == Protocol::Resp3;
    match reply {
        Reply::Nothing => {}
        Reply::Null | Reply::NullArray if resp3 => out.extend_from_slice(b"_\r\n"),
        Reply::Null => out.extend_from_slice(b"$-1\r\n"),
        Reply::NullArray => out.extend_from_slice(b"*-1\r\n"),
        Reply::Int(value) => head(b':', *value, out),
        Reply::Bulk(bytes) => bulk(bytes, out),
        Reply::Simple(text) => line(b'+', text, out),
        Reply::Error(text) => line(b'-', text, out),
        Reply::Array(items) => list(b'*', items, protocol, out),
        Reply::Set(items) => list(if resp3 { b'~' } else { b'*' }, items, protocol, out),
        Reply::Push(items) => list(if resp3 { b'>' } else { b'*' }, items, protocol, out),
        Reply::Several(replies) => replies.iter().for_each(|reply| encode(reply, protocol, out)),
        Reply::Map(pairs) => {
            count(if resp3 { b'%' } else { b'*' }, if resp3 { pairs.len() } else { pairs.len() * 2 }, out);
            for (key, value) in pairs {
                encode(key, protocol, out);
                encode(value, protocol, out);
            }
        }
        Reply::Pairs(pairs) => {
            count(b'*', if resp3 { pairs.len() } else { pairs.len() * 2 }, out);
            for (first, second) in pairs {
                if resp3 {
                    count(b'*', 2, out);
                }
                encode(first, protocol, out);
                encode(second, protocol, out);
            }
        }
        Reply::Keyed(pairs) => {
            count(if resp3 { b'%' } else { b'*' }, pairs.len(), out);
            for (key, value) in pairs {
                if !resp3 {
                    count(b'*', 2, out);
                }
                encode(key, protocol, out);
                encode(value, protocol, out);
            }
        }
        Reply::Scored(pairs) => {
            count(b'*', if resp3 { pairs.len() } else { pairs.len() * 2 }, out);
            for (member, score) in pairs {
                if resp3 {
                    count(b'*', 2, out);
                }
                bulk(member, out);
                encode(&Reply::Double(*score), protocol, out);
            }
        }
        Reply::Double(value) if resp3 => line(b',', &write_float(*value), out),
        Reply::Double(value) => bulk(write_float(*value).as_bytes(), out),
        Reply::Bool(value) if resp3 => line(b'#', if *value { "t" } else { "f" }, out),
        Reply::Bool(value) => head(b':', i64::from(*value), out),
        Reply::BigNumber(digits) if resp3 => line(b'(', digits, out),
        Reply::BigNumber(digits) => bulk(digits.as_bytes(), out),
        Reply::Text(text) if resp3 => verbatim("txt", text.as_bytes(), out),
        Reply::Text(text) => bulk(text.as_bytes(), out),
        Reply::Verbatim { format, text } if resp3 => verbatim(format, text, out),
        Reply::Verbatim { text, .. } => bulk(text, out),
    }
}

/// A format has three characters.
fn verbatim(format: &str, text: &[u8], out: &mut Vec<u8>) {
    count(b'=', text.len() + 4, out);
    out.extend((0..3).map(|at| format.as_bytes().get(at).copied().unwrap_or(b' ')));
    out.push(b':');
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn list(sign: u8, items: &[Reply], protocol: Protocol, out: &mut Vec<u8>) {
    count(sign, items.len(), out);
    items.iter().for_each(|item| encode(item, protocol, out));
}

fn count(sign: u8, count: usize, out: &mut Vec<u8>) {
    head(sign, count as i64, out);
}

fn head(sign: u8, value: i64, out: &mut Vec<u8>) {
    line(sign, itoa::Buffer::new().format(value), out);
}

fn line(sign: u8, text: &str, out: &mut Vec<u8>) {
    out.push(sign);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    count(b'$', bytes.len(), out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}
