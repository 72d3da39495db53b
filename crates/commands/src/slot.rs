//! The hash slot of a key, as Redis Cluster computes it.

/// The number of slots of a Redis Cluster.
pub const SLOTS: u16 = 16384;

/// The slot of `key`. It is computed from the part in the first pair of braces if that is not empty, otherwise from the
/// whole key.
pub fn key_slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let after_open = key.iter().position(|&byte| byte == b'{')? + 1;
    let length = key[after_open..].iter().position(|&byte| byte == b'}')?;
    (length > 0).then(|| &key[after_open..after_open + length])
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replies of a real `CLUSTER KEYSLOT`.
    #[test]
    fn slots_match_redis() {
        for (key, slot) in [("", 0), ("foo", 12182), ("{user1000}.following", 3443), ("foo{}{bar}", 8363)] {
            assert_eq!(key_slot(key.as_bytes()), slot, "{key}");
        }
        assert_eq!(key_slot(b"foo{{bar}}zap"), key_slot(b"{bar"));
    }
}
