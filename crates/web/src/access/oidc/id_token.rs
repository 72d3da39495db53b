//! Checks the claims of ID tokens: issuer, audience, times and nonce.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::access::jwks::SignatureError;

/// The clock skew that is tolerated, in seconds.
const LEEWAY_S: f64 = 60.0;
/// The longest subject of a user, as in the specification.
const MAX_SUBJECT_BYTES: usize = 255;
/// The maximum number of characters in the name of a user.
const MAX_NAME_CHARS: usize = 100;

/// What a token must say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
    pub(super) now_s: i64,
}

/// The claims of a valid token.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Claims {
    pub(super) sub: String,
    all: Map<String, Value>,
}

/// Why a token is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenError {
    #[error("malformed")]
    Malformed,
    #[error(transparent)]
    Signature(#[from] SignatureError),
    #[error("issued by another issuer")]
    Issuer,
    #[error("issued for another client")]
    Audience,
    #[error("expired")]
    Expired,
    #[error("not valid yet")]
    NotYetValid,
    #[error("issued for another sign-in (nonce mismatch)")]
    Nonce,
    #[error("the subject is missing or too long")]
    Subject,
}

#[derive(Deserialize)]
struct Checked {
    iss: String,
    sub: String,
    aud: Audience,
    azp: Option<String>,
    exp: f64,
    nbf: Option<f64>,
    iat: Option<f64>,
    nonce: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

/// Checks the claims of a token whose signature is valid.
pub(super) fn check(all: Map<String, Value>, expected: Expected<'_>) -> Result<Claims, TokenError> {
    let checked = Checked::deserialize(&Value::Object(all.clone())).map_err(|_| TokenError::Malformed)?;
    checked.check(expected)?;
    Ok(Claims { sub: checked.sub, all })
}

impl Checked {
    fn check(&self, expected: Expected<'_>) -> Result<(), TokenError> {
        let now = expected.now_s as f64;
        if self.iss != expected.issuer {
            return Err(TokenError::Issuer);
        }
        let is_ours = |client: &String| client == expected.client_id;
        let is_for_us = match &self.aud {
            Audience::One(client) => is_ours(client),
            // A token for several clients must have been issued to this one.
            Audience::Many(clients) => {
                clients.iter().any(is_ours) && (clients.len() == 1 || self.azp.is_some())
            }
        };
        if !is_for_us || !self.azp.as_ref().is_none_or(is_ours) {
            return Err(TokenError::Audience);
        }
        if self.exp + LEEWAY_S <= now {
            return Err(TokenError::Expired);
        }
        if self.nbf.into_iter().chain(self.iat).any(|from| from > now + LEEWAY_S) {
            return Err(TokenError::NotYetValid);
        }
        if self.nonce.as_deref() != Some(expected.nonce) {
            return Err(TokenError::Nonce);
        }
        if self.sub.is_empty() || self.sub.len() > MAX_SUBJECT_BYTES || self.sub.contains(char::is_control) {
            return Err(TokenError::Subject);
        }
        Ok(())
    }
}

impl Claims {
    /// The groups in a claim, which is a list of strings or one string.
    pub(super) fn groups(&self, claim: &str) -> Vec<String> {
        match self.all.get(claim) {
            Some(Value::Array(groups)) => {
                groups.iter().filter_map(|group| group.as_str().map(str::to_owned)).collect()
            }
            Some(Value::String(group)) => vec![group.clone()],
            _ => Vec::new(),
        }
    }

    /// The name for people: the e-mail address, unless the provider says that it is not verified. Any other name is
    /// followed by the subject, because users may choose it, and could choose `admin`.
    pub(super) fn name(&self) -> String {
        let unverified = match self.all.get("email_verified") {
            Some(Value::Bool(verified)) => !verified,
            Some(Value::String(verified)) => verified != "true",
            _ => false,
        };
        if let Some(email) = self.text("email").filter(|email| email.contains('@') && !unverified) {
            return email;
        }
        match self.text("preferred_username").or_else(|| self.text("name")) {
            Some(name) => format!("{name} ({})", self.sub),
            None => format!("({})", self.sub),
        }
    }

    /// A claim that is a short text.
    fn text(&self, claim: &str) -> Option<String> {
        let text = self.all.get(claim)?.as_str()?.trim();
        let is_fit =
            !text.is_empty() && text.chars().count() <= MAX_NAME_CHARS && !text.contains(char::is_control);
        is_fit.then(|| text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use jsonwebtoken::crypto::sign;
    use jsonwebtoken::{Algorithm, EncodingKey};
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
    use serde_json::json;

    use super::*;
    use crate::access::jwks::KeySet;

    const NOW: i64 = 1_763_289_000;

    const EXPECTED: Expected<'_> =
        Expected { issuer: "https://login.example.com", client_id: "hob", nonce: "n-1", now_s: NOW };

    struct Signer {
        pair: EcdsaKeyPair,
        keys: KeySet,
    }

    impl Signer {
        fn new() -> Self {
            let random = ring::rand::SystemRandom::new();
            let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
            let pair =
                EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap();
            let point = pair.public_key().as_ref();
            let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..]));
            let keys = json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "k1", "x": x, "y": y}]});
            let keys = KeySet::parse(keys.to_string().as_bytes()).unwrap();
            Self { pair, keys }
        }

        fn token(&self, header: &Value, claims: &Value) -> String {
            let signed = message(header, claims);
            let random = ring::rand::SystemRandom::new();
            let signature = self.pair.sign(&random, signed.as_bytes()).unwrap();
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
        }

        fn verify(&self, claims: &Value) -> Result<Claims, TokenError> {
            verify(&self.token(&json!({"alg": "ES256", "kid": "k1"}), claims), &self.keys, EXPECTED)
        }
    }

    fn verify(token: &str, keys: &KeySet, expected: Expected<'_>) -> Result<Claims, TokenError> {
        check(keys.verify(token)?, expected)
    }

    fn message(header: &Value, claims: &Value) -> String {
        let encode = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        format!("{}.{}", encode(header), encode(claims))
    }

    fn with(changes: Value) -> Value {
        let mut claims = json!({
            "iss": "https://login.example.com", "sub": "ada", "aud": "hob", "exp": NOW + 60, "iat": NOW,
            "nonce": "n-1",
        });
        let Value::Object(changes) = changes else { panic!("not an object") };
        claims.as_object_mut().unwrap().extend(changes);
        claims
    }

    #[test]
    fn claims_are_checked() {
        let signer = Signer::new();
        for accepted in [
            json!({}),
            json!({"aud": ["hob"]}),
            json!({"aud": ["other", "hob"], "azp": "hob"}),
            json!({"azp": "hob"}),
            json!({"exp": NOW - 59}),
            json!({"nbf": NOW + 59}),
        ] {
            assert!(signer.verify(&with(accepted.clone())).is_ok(), "{accepted}");
        }
        for (refused, why) in [
            (json!({"iss": "https://login.example.com/"}), TokenError::Issuer),
            (json!({"aud": "other"}), TokenError::Audience),
            (json!({"aud": []}), TokenError::Audience),
            (json!({"aud": ["hob", "other"]}), TokenError::Audience),
            (json!({"aud": ["hob", "other"], "azp": "other"}), TokenError::Audience),
            (json!({"azp": "other"}), TokenError::Audience),
            (json!({"exp": NOW - 60}), TokenError::Expired),
            (json!({"nbf": NOW + 61}), TokenError::NotYetValid),
            (json!({"iat": NOW + 61}), TokenError::NotYetValid),
            (json!({"nonce": "n-2"}), TokenError::Nonce),
            (json!({"nonce": null}), TokenError::Nonce),
            (json!({"sub": ""}), TokenError::Subject),
            (json!({"sub": "x".repeat(256)}), TokenError::Subject),
            (json!({"sub": 7}), TokenError::Malformed),
            (json!({"exp": "9999999999"}), TokenError::Malformed),
            (json!({"exp": null}), TokenError::Malformed),
            (json!({"nbf": "1"}), TokenError::Malformed),
            (json!({"aud": null}), TokenError::Malformed),
            (json!({"iss": null}), TokenError::Malformed),
        ] {
            assert_eq!(signer.verify(&with(refused.clone())), Err(why), "{refused}");
        }
    }

    #[test]
    fn token_cannot_choose_its_algorithm_or_its_key() {
        let signer = Signer::new();
        let claims = with(json!({}));
        let verdict = |token: &str| verify(token, &signer.keys, EXPECTED).map(drop);
        assert_eq!(verdict(&signer.token(&json!({"alg": "ES256"}), &claims)), Ok(()), "one key needs no id");
        for (header, why) in [
            (json!({"alg": "none"}), SignatureError::Algorithm.into()),
            (json!({"alg": "HS256", "kid": "k1"}), SignatureError::Algorithm.into()),
            (json!({"alg": "ES384", "kid": "k1"}), SignatureError::Algorithm.into()),
            (json!({"alg": "es256", "kid": "k1"}), SignatureError::Algorithm.into()),
            (json!({"alg": "RS256", "kid": "k1"}), SignatureError::UnknownKey.into()),
            (json!({"alg": "ES256", "kid": "k2"}), SignatureError::UnknownKey.into()),
            (json!({"alg": "ES256", "kid": "k1", "crit": ["b64"]}), SignatureError::Malformed.into()),
            (json!({"kid": "k1"}), SignatureError::Malformed.into()),
        ] {
            assert_eq!(verdict(&signer.token(&header, &claims)), Err(why), "{header}");
        }
        // The public key used as a secret: the classic algorithm confusion.
        let signed = message(&json!({"alg": "HS256", "kid": "k1"}), &claims);
        let key = EncodingKey::from_secret(signer.pair.public_key().as_ref());
        let signature = sign(signed.as_bytes(), &key, Algorithm::HS256).unwrap();
        assert_eq!(verdict(&format!("{signed}.{signature}")), Err(SignatureError::Algorithm.into()));
        assert_eq!(
            verdict(&format!("{}.", message(&json!({"alg": "none"}), &claims))),
            Err(SignatureError::Algorithm.into())
        );
        let other = Signer::new().token(&json!({"alg": "ES256", "kid": "k1"}), &claims);
        assert_eq!(verdict(&other), Err(SignatureError::Invalid.into()));
        for rubbish in ["", ".", "..", "a.b.c", &"x".repeat(70_000)] {
            assert_eq!(verdict(rubbish), Err(SignatureError::Malformed.into()));
        }
    }

    #[test]
    fn name_cannot_be_that_of_another_actor() {
        let signer = Signer::new();
        let name = |claims: Value| signer.verify(&with(claims)).unwrap().name();
        assert_eq!(name(json!({"email": "ada@example.com", "name": "Ada"})), "ada@example.com");
        assert_eq!(name(json!({"email": "ada@example.com", "email_verified": true})), "ada@example.com");
        let unverified = json!({"email": "root@example.com", "email_verified": false, "name": "Ada"});
        assert_eq!(name(unverified), "Ada (ada)");
        assert_eq!(name(json!({"preferred_username": "admin", "name": "Ada"})), "admin (ada)");
        assert_eq!(name(json!({"email": "admin"})), "(ada)");
        assert_eq!(name(json!({"name": "a\nb"})), "(ada)");
    }

    #[test]
    fn groups_are_a_list_or_one_text() {
        let signer = Signer::new();
        let groups = |claims: Value| signer.verify(&with(claims)).unwrap().groups("groups");
        assert_eq!(groups(json!({"groups": ["sre", 7, "dev"]})), ["sre", "dev"]);
        assert_eq!(groups(json!({"groups": "sre"})), ["sre"]);
        assert!(groups(json!({"groups": {"sre": true}})).is_empty());
        assert!(groups(json!({"roles": ["sre"]})).is_empty());
    }
}
