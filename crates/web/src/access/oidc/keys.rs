//! The keys of a provider (JWKS). Each has exactly one algorithm, so that a token cannot choose how it is verified.

use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;

/// More keys than providers publish.
const MAX_KEYS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct KeySet(Vec<Key>);

pub(super) struct Key {
    id: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

/// The document as it is sent. A key of an unknown kind must not make the other keys unusable.
#[derive(Deserialize)]
struct Document {
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    #[serde(default)]
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// The keys that can verify a signature with RS256 or ES256.
    pub(super) fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        let document: Document = serde_json::from_slice(json)?;
        Ok(Self(document.keys.into_iter().filter_map(Jwk::into_key).take(MAX_KEYS).collect()))
    }

    /// The keys that may have signed a token: the one with its key id, or all if it has none.
    pub(super) fn candidates<'a>(
        &'a self,
        id: Option<&'a str>,
        algorithm: Algorithm,
    ) -> impl Iterator<Item = &'a Key> {
        let fits = move |key: &&Key| id.is_none_or(|id| key.id.as_deref() == Some(id));
        self.0.iter().filter(move |key| key.algorithm == algorithm).filter(fits)
    }
}

impl Jwk {
    fn into_key(self) -> Option<Key> {
        if self.purpose.is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let (name, algorithm, key) = match self.kty.as_str() {
            "RSA" => {
                let key = DecodingKey::from_rsa_components(&self.n?, &self.e?).ok()?;
                ("RS256", Algorithm::RS256, key)
            }
            "EC" if self.crv.as_deref() == Some("P-256") => {
                let key = DecodingKey::from_ec_components(&self.x?, &self.y?).ok()?;
                ("ES256", Algorithm::ES256, key)
            }
            _ => return None,
        };
        let is_for_it = self.alg.is_none_or(|alg| alg == name);
        is_for_it.then_some(Key { id: self.kid, algorithm, key })
    }
}

/// Omits the key, which is public but long.
impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_keys_are_left_out() {
        let keys = r#"{"keys": [
            {"kty": "oct", "kid": "secret", "k": "c2VjcmV0", "alg": "HS256"},
            {"kty": "RSA", "kid": "encryption", "use": "enc", "n": "AQAB", "e": "AQAB"},
            {"kty": "RSA", "kid": "other", "alg": "PS256", "n": "AQAB", "e": "AQAB"},
            {"kty": "RSA", "kid": "incomplete", "n": "AQAB"},
            {"kty": "RSA", "kid": "rsa", "n": "AQAB", "e": "AQAB", "x5c": ["…"]},
            {"kty": "EC", "kid": "large", "crv": "P-384", "x": "AQAB", "y": "AQAB"},
            {"kty": "EC", "kid": "ec", "crv": "P-256", "x": "AQAB", "y": "AQAB"},
            {"kty": "OKP", "crv": "Ed25519", "x": "AQAB"},
            {}
        ]}"#;
        let keys = KeySet::parse(keys.as_bytes()).unwrap();
        let ids: Vec<_> = keys.0.iter().map(|key| key.id.as_deref().unwrap_or_default()).collect();
        assert_eq!(ids, ["rsa", "ec"]);
        assert_eq!(keys.candidates(Some("rsa"), Algorithm::RS256).count(), 1);
        assert_eq!(keys.candidates(Some("rsa"), Algorithm::ES256).count(), 0, "a key has one algorithm");
        assert_eq!(keys.candidates(None, Algorithm::ES256).count(), 1);
        assert!(KeySet::parse(b"[]").is_err());
    }
}
