//! LZF, with which Redis compresses long strings.

/// Unpacks to exactly this length; `None` if the bytes are damaged.
pub(super) fn unpack(packed: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = packed.iter().copied();
    while let Some(control) = rest.next() {
        if control < 32 {
            // The next bytes as they are.
            for _ in 0..=control {
                out.push(rest.next()?);
            }
        } else {
            let mut count = usize::from(control >> 5);
            if count == 7 {
                count += usize::from(rest.next()?);
            }
            let distance = (usize::from(control & 0x1f) << 8 | usize::from(rest.next()?)) + 1;
            let from = out.len().checked_sub(distance)?;
            // The copy may overlap its own result.
            for at in from..from + count + 2 {
                out.push(*out.get(at)?);
            }
        }
        if out.len() > length {
            return None;
        }
    }
    (out.len() == length).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_bytes_are_copied() {
        // One byte as it is, then nine copies of it.
        assert_eq!(unpack(&[0, b'a', 0xe0, 0, 0], 10).unwrap(), b"aaaaaaaaaa");
        for damaged in [&[5_u8, b'a'][..], &[0x20, 9], &[0, b'a', 0xe0, 0], &[0, b'a']] {
            assert_eq!(unpack(damaged, 10), None, "{damaged:?}");
        }
    }
}
