//! The keys of a provider (JWKS). Each has exactly one algorithm, so that a token cannot choose how it is verified.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// More keys than providers publish.
const MAX_KEYS: usize = 64;

/// Longer tokens are rejected without reading them. The token of a user with very many groups is long.
const MAX_TOKEN_BYTES: usize = 64 * 1024;

/// Keys that verify RS256 and ES256.
#[derive(Debug, Default)]
pub struct KeySet(Vec<Key>);

struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// Why the signature of a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("malformed")]
    Malformed,
    #[error("signed with an algorithm other than RS256 and ES256")]
    Algorithm,
    #[error("signed with an unknown key")]
    UnknownKey,
    /// The provider may have replaced its keys since.
    #[error("signed with an unknown key, and the keys were fetched a moment ago")]
    NotFetched,
    #[error("the signature is not valid")]
    Invalid,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that a verifier must understand. `jsonwebtoken` ignores this header.
    crit: Option<serde::de::IgnoredAny>,
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
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        let document: Document = serde_json::from_slice(json)?;
        Ok(Self(document.keys.into_iter().filter_map(Jwk::into_key).take(MAX_KEYS).collect()))
    }

    /// The claims of a token with a valid signature. Nothing else is checked.
    pub fn verify<T: DeserializeOwned>(&self, token: &str) -> Result<T, SignatureError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(SignatureError::Malformed);
        }
        let header = token.split('.').next().and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
        let header: Option<Header> = header.and_then(|json| serde_json::from_slice(&json).ok());
        let header = header.filter(|header| header.crit.is_none()).ok_or(SignatureError::Malformed)?;
        let algorithm = match header.alg.as_str() {
            "RS256" => Algorithm::RS256,
            "ES256" => Algorithm::ES256,
            _ => return Err(SignatureError::Algorithm),
        };
        // Callers check the claims, because all of them are required.
        let mut validation = Validation::new(algorithm);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        let mut error = SignatureError::UnknownKey;
        for key in self.candidates(header.kid.as_deref(), algorithm) {
            match decode(token, &key.key, &validation) {
                Ok(decoded) => return Ok(decoded.claims),
                Err(_) => error = SignatureError::Invalid,
            }
        }
        Err(error)
    }

    /// The keys that may have signed a token: the one with its key id, or all if it has none.
    fn candidates<'a>(&'a self, id: Option<&'a str>, algorithm: Algorithm) -> impl Iterator<Item = &'a Key> {
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
