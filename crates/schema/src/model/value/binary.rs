//! Forms of binary values: only what their encoding shows is checked.

use super::Mismatch;

/// The header of a HyperLogLog, and its size with all registers.
const HLL_HEADER: usize = 16;
const HLL_DENSE: usize = HLL_HEADER + 16_384 * 6 / 8;
/// A MessagePack value with deeper lists and maps is refused.
const MAX_DEPTH: usize = 128;

fn mismatch(message: &str) -> Result<(), Mismatch> {
    Err(Mismatch(message.to_owned()))
}

/// Whether the bytes are a string that `PFADD` has written.
pub fn is_hyperloglog(bytes: &[u8]) -> bool {
    let Some(header) = bytes.get(..HLL_HEADER) else { return false };
    // The encoding, 0 with all registers or 1 without the empty ones, and three unused bytes.
    header.starts_with(b"HYLL")
        && header[5..8] == [0; 3]
        && match header[4] {
            0 => bytes.len() == HLL_DENSE,
            1 => true,
            _ => false,
        }
}

pub(super) fn hyperloglog(bytes: &[u8]) -> Result<(), Mismatch> {
    if is_hyperloglog(bytes) { Ok(()) } else { mismatch("is not a HyperLogLog: it has no valid header") }
}

/// Exactly one MessagePack value.
pub(super) fn msgpack(bytes: &[u8]) -> Result<(), Mismatch> {
    let mut rest = bytes;
    // How many values are left in each open list or map.
    let mut open: Vec<u64> = vec![1];
    while let Some(left) = open.last_mut() {
        if *left == 0 {
            open.pop();
            continue;
        }
        *left -= 1;
        let Some(values) = msgpack_value(&mut rest) else {
            return mismatch("is not MessagePack");
        };
        if values > 0 {
            if open.len() > MAX_DEPTH {
                return mismatch("is MessagePack with too many levels");
            }
            open.push(values);
        }
    }
    if rest.is_empty() { Ok(()) } else { mismatch("is not MessagePack: bytes follow the value") }
}

/// Whether the bytes are exactly one MessagePack list or map.
pub fn is_msgpack_container(bytes: &[u8]) -> bool {
    matches!(bytes.first(), Some(0x80..=0x9f | 0xdc..=0xdf)) && msgpack(bytes).is_ok()
}

/// Skips one value without its elements, and returns how many elements follow.
fn msgpack_value(rest: &mut &[u8]) -> Option<u64> {
    let head = *rest.split_off_first()?;
    let (skipped, elements) = match head {
        // Small numbers, nil, false and true.
        0x00..=0x7f | 0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff => (0, 0),
        0x80..=0x8f => (0, 2 * u64::from(head & 0x0f)),
        0x90..=0x9f => (0, u64::from(head & 0x0f)),
        0xa0..=0xbf => (u64::from(head & 0x1f), 0),
        0xc1 => return None,
        // Binary data, extensions and texts have their length in front.
        0xc4 | 0xd9 => (number(rest, 1)?, 0),
        0xc5 | 0xda => (number(rest, 2)?, 0),
        0xc6 | 0xdb => (number(rest, 4)?, 0),
        0xc7 => (number(rest, 1)? + 1, 0),
        0xc8 => (number(rest, 2)? + 1, 0),
        0xc9 => (number(rest, 4)? + 1, 0),
        0xcc | 0xd0 => (1, 0),
        0xcd | 0xd1 => (2, 0),
        0xca | 0xce | 0xd2 => (4, 0),
        0xcb | 0xcf | 0xd3 => (8, 0),
        // Extensions of 1, 2, 4, 8 and 16 bytes, after their type.
        0xd4..=0xd8 => ((1 << (head - 0xd4)) + 1, 0),
        0xdc => (0, number(rest, 2)?),
        0xdd => (0, number(rest, 4)?),
        0xde => (0, 2 * number(rest, 2)?),
        0xdf => (0, 2 * number(rest, 4)?),
    };
    rest.split_off(..usize::try_from(skipped).ok()?)?;
    Some(elements)
}

/// A number of so many bytes, the most significant first.
fn number(rest: &mut &[u8], bytes: usize) -> Option<u64> {
    let bytes = rest.split_off(..bytes)?;
    Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Fields of a Protocol Buffers message. What they mean is not known.
pub(super) fn protobuf(bytes: &[u8]) -> Result<(), Mismatch> {
    let mut rest = bytes;
    let mut groups = 0_u32;
    while !rest.is_empty() {
        if protobuf_field(&mut rest, &mut groups).is_none() {
            return mismatch("is not a Protocol Buffers message");
        }
    }
    if groups == 0 { Ok(()) } else { mismatch("is not a Protocol Buffers message: a group does not end") }
}

fn protobuf_field(rest: &mut &[u8], groups: &mut u32) -> Option<()> {
    let tag = varint(rest)?;
    if tag >> 3 == 0 {
        return None;
    }
    let length = match tag & 7 {
        0 => return varint(rest).map(drop),
        1 => 8,
        2 => varint(rest)?,
        3 => {
            *groups = groups.checked_add(1)?;
            0
        }
        4 => {
            *groups = groups.checked_sub(1)?;
            0
        }
        5 => 4,
        _ => return None,
    };
    rest.split_off(..usize::try_from(length).ok()?)?;
    Some(())
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *rest.split_off_first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn header_of_a_hyperloglog_is_checked() {
        let sparse = [&b"HYLL\x01\0\0\0"[..], &[0; 8], &[0x7f, 0xff]].concat();
        assert!(is_hyperloglog(&sparse));
        let dense = [&b"HYLL\0\0\0\0"[..], &[0; HLL_DENSE - 8]].concat();
        assert!(is_hyperloglog(&dense) && !is_hyperloglog(&dense[..HLL_DENSE - 1]));
        for wrong in [&b""[..], b"HYLL", b"HYLL\x02\0\0\0\0\0\0\0\0\0\0\0", b"hello, this is a text"] {
            assert!(!is_hyperloglog(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn messagepack_is_one_whole_value() {
        let map = b"\x82\xa4name\xa3Ada\xa5years\x93\x01\xcd\x01\x00\xcb\0\0\0\0\0\0\0\0";
        assert_eq!(msgpack(map), Ok(()));
        for good in
            [&b"\xc0"[..], b"*", b"\xd9\x03abc", b"\xc7\x02\x05ab", b"\xd8\x05aaaaaaaaaaaaaaaa", b"\x80"]
        {
            assert_eq!(msgpack(good), Ok(()), "{good:?}");
        }
        for wrong in [&b""[..], b"\xc1", b"\xa4abc", b"**", b"\x81*", b"\xdd\xff\xff\xff\xff", b"hello"] {
            assert!(msgpack(wrong).is_err(), "{wrong:?}");
        }
        assert!(msgpack(&[0x91; 1_000]).unwrap_err().to_string().contains("levels"));
    }

    #[test]
    fn protobuf_is_a_sequence_of_fields() {
        for good in
            [&b""[..], b"\x08\x96\x01", b"\x12\x07testing", b"\x0d\0\0\0\0\x11\0\0\0\0\0\0\0\0", b"\x0b\x0c"]
        {
            assert_eq!(protobuf(good), Ok(()), "{good:?}");
        }
        for wrong in [&b"\x08"[..], b"\x12\x09testing", b"\x00\x01", b"\x0f", b"\x0b", b"\x0c"] {
            assert!(protobuf(wrong).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged_without_a_panic(bytes: Vec<u8>) {
            let _ = (msgpack(&bytes), protobuf(&bytes), is_hyperloglog(&bytes));
        }
    }
}
