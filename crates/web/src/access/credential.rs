//! Random secrets and their hashes. Only the hash is stored. The secrets have 256 bits, so a plain SHA-256 is enough.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};

/// The hash of a secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Hash([u8; 32]);

/// A new secret: 256 bits in 43 letters, digits, `-` and `_`.
pub fn random() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

/// A random identifier of 64 bits.
pub(crate) fn random_id() -> String {
    format!("{:016x}", rand::random::<u64>())
}

impl Hash {
    pub(crate) fn of(secret: &str) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn to_text(self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// Reads the text of [`to_text`](Self::to_text).
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok().map(Self)
    }

    /// Compares in constant time.
    pub(crate) fn is(&self, other: &[u8]) -> bool {
        let difference = self.0.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
        other.len() == self.0.len() && std::hint::black_box(difference) == 0
    }
}

/// Hides the hash.
impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hash(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_matches_its_secret_only() {
        let hash = Hash::of("hob_abc");
        assert!(hash.is(Hash::of("hob_abc").bytes()));
        assert!(!hash.is(Hash::of("hob_abd").bytes()));
        assert!(!hash.is(&hash.bytes()[..31]));
        assert!(!hash.is(&[]));
        assert_eq!(Hash::from_text(&hash.to_text()), Some(hash));
        assert_eq!(Hash::from_text("c2hvcnQ"), None);
    }
}
