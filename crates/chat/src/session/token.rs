//! Who somebody is: JSON Web Tokens, verified strictly. Each key has one algorithm, so a token cannot choose
//! how it is checked, and `none` is not among them.

use std::fmt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SecureRandom;
use ring::{hmac, signature};
use serde::{Deserialize, Serialize};

use crate::keys::UserId;
use crate::{Config, Error};

/// The longest token that is looked at.
const LONGEST: usize = 8 * 1024;
/// How far clocks may be apart, in seconds.
const LEEWAY_S: i64 = 5;

/// The keys that tokens are checked with.
pub struct Tokens {
    keys: Vec<Key>,
    /// Signs the tokens that this process gives out.
    own: Option<hmac::Key>,
    audience: Option<String>,
}

enum Key {
    Hs256(hmac::Key),
    Rs256(Vec<u8>),
    Es256(Vec<u8>),
}

/// A user whose token was right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub user: UserId,
    /// When the token is over, in Unix seconds.
    pub expires_s: i64,
}

/// Why a token is not accepted. Never says more than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadToken {
    /// Not a token of ours.
    Invalid,
    /// It was right once.
    Expired,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    crit: Option<Vec<String>>,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    sub: String,
    exp: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nbf: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    aud: Option<Audience>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Tokens {
    /// The keys that the configuration names; a key of this process alone if it names none.
    pub fn from_config(config: &Config) -> Result<Self, Error> {
        let mut keys = Vec::new();
        let mut own = None;
        if let Some(secret) = &config.token_secret {
            let secret = secret.read().map_err(|error| Error::Config(format!("token_secret: {error}")))?;
            if secret.reveal().len() < 16 {
                return Err(Error::Config("token_secret: at least 16 bytes, please".to_owned()));
            }
            own = Some(hmac::Key::new(hmac::HMAC_SHA256, secret.reveal().as_bytes()));
        }
        for path in &config.token_public_keys {
            keys.push(public_key(Path::new(path))?);
        }
        if own.is_none() && keys.is_empty() {
            own = Some(made_up()?);
        }
        keys.extend(own.clone().map(Key::Hs256));
        let audience = Some(config.token_audience.clone()).filter(|audience| !audience.is_empty());
        Ok(Self { keys, own, audience })
    }

    /// Who the bearer is, at a time in Unix seconds.
    pub fn verify(&self, token: &str, now_s: i64) -> Result<Verified, BadToken> {
        if token.len() > LONGEST {
            return Err(BadToken::Invalid);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(BadToken::Invalid)?;
        let (header, payload) = signed.split_once('.').ok_or(BadToken::Invalid)?;
        let header: Header = part(header)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| BadToken::Invalid)?;
        let verifies = |key: &Key| key.verifies(&header.alg, signed.as_bytes(), &signature);
        if header.crit.is_some() || !self.keys.iter().any(verifies) {
            return Err(BadToken::Invalid);
        }
        self.accept(part(payload)?, now_s)
    }

    fn accept(&self, claims: Claims, now_s: i64) -> Result<Verified, BadToken> {
        let user = UserId::new(claims.sub).map_err(|_| BadToken::Invalid)?;
        let expires_s = claims.exp as i64;
        if let Some(wanted) = &self.audience
            && !claims.aud.is_some_and(|audience| audience.names(wanted))
        {
            return Err(BadToken::Invalid);
        }
        if claims.nbf.is_some_and(|from| from as i64 > now_s + LEEWAY_S) {
            return Err(BadToken::Invalid);
        }
        if expires_s + LEEWAY_S <= now_s {
            return Err(BadToken::Expired);
        }
        Ok(Verified { user, expires_s })
    }

    /// A token for a user, if this process holds a secret to sign with.
    pub fn issue(&self, user: &UserId, expires_s: i64) -> Option<String> {
        let aud = self.audience.clone().map(Audience::One);
        let claims = Claims { sub: user.to_string(), exp: expires_s as f64, nbf: None, aud };
        let payload = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&claims).ok()?);
        let signed = format!("{}.{payload}", URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#));
        let tag = hmac::sign(self.own.as_ref()?, signed.as_bytes());
        Some(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag)))
    }
}

impl Key {
    /// Compares in constant time, and only for the algorithm that the key is for.
    fn verifies(&self, algorithm: &str, signed: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Hs256(key) => algorithm == "HS256" && hmac::verify(key, signed, signature).is_ok(),
            Self::Rs256(key) => {
                algorithm == "RS256" && public(&signature::RSA_PKCS1_2048_8192_SHA256, key, signed, signature)
            }
            Self::Es256(key) => {
                algorithm == "ES256" && public(&signature::ECDSA_P256_SHA256_FIXED, key, signed, signature)
            }
        }
    }
}

fn public(
    algorithm: &'static dyn signature::VerificationAlgorithm,
    key: &[u8],
    signed: &[u8],
    signature: &[u8],
) -> bool {
    signature::UnparsedPublicKey::new(algorithm, key).verify(signed, signature).is_ok()
}

impl Audience {
    fn names(&self, wanted: &str) -> bool {
        match self {
            Self::One(name) => name == wanted,
            Self::Many(names) => names.iter().any(|name| name == wanted),
        }
    }
}

fn part<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, BadToken> {
    let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| BadToken::Invalid)?;
    serde_json::from_slice(&json).map_err(|_| BadToken::Invalid)
}

fn made_up() -> Result<hmac::Key, Error> {
    let mut secret = [0; 32];
    ring::rand::SystemRandom::new()
        .fill(&mut secret)
        .map_err(|_| Error::Config("the system gives no random numbers".to_owned()))?;
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &secret))
}

/// A key from a file with `-----BEGIN PUBLIC KEY-----`.
fn public_key(path: &Path) -> Result<Key, Error> {
    let bad = |reason: &str| Error::Config(format!("{}: {reason}", path.display()));
    let pem = std::fs::read_to_string(path).map_err(|error| bad(&error.to_string()))?;
    let body = pem
        .split_once("-----BEGIN PUBLIC KEY-----")
        .and_then(|(_, rest)| rest.split_once("-----END PUBLIC KEY-----"))
        .map(|(body, _)| body.split_whitespace().collect::<String>())
        .ok_or_else(|| bad("no public key in PEM"))?;
    let der = STANDARD.decode(body).map_err(|_| bad("not base64"))?;
    subject_public_key(&der).ok_or_else(|| bad("neither an RSA nor a P-256 public key"))
}

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];

/// SubjectPublicKeyInfo: a sequence of an algorithm (itself a sequence of an object id and its parameters) and
/// a bit string with the key.
fn subject_public_key(der: &[u8]) -> Option<Key> {
    let (info, _) = element(der, 0x30)?;
    let (algorithm, rest) = element(info, 0x30)?;
    let (id, parameters) = element(algorithm, 0x06)?;
    let (bits, _) = element(rest, 0x03)?;
    let key = bits.strip_prefix(&[0])?.to_vec();
    match id {
        RSA => Some(Key::Rs256(key)),
        EC if element(parameters, 0x06)?.0 == P256 => Some(Key::Es256(key)),
        _ => None,
    }
}

/// The content of the first DER element, which must be of this kind, and what follows it.
fn element(der: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = der.split_first()?;
    let (&length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
        0x82 => (usize::from(*rest.first()?) << 8 | usize::from(*rest.get(1)?), rest.get(2..)?),
        _ => return None,
    };
    (first == kind && rest.len() >= length).then(|| rest.split_at(length))
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{EcdsaKeyPair, KeyPair};

    use super::*;

    const NOW: i64 = 1_763_289_000;

    fn tokens() -> Tokens {
        Tokens::from_config(&Config::default()).unwrap()
    }

    fn anna() -> UserId {
        UserId::new("anna").unwrap()
    }

    #[test]
    fn a_token_is_valid_until_it_expires() {
        let tokens = tokens();
        let token = tokens.issue(&anna(), NOW + 60).unwrap();
        assert_eq!(tokens.verify(&token, NOW), Ok(Verified { user: anna(), expires_s: NOW + 60 }));
        assert_eq!(tokens.verify(&token, NOW + 66), Err(BadToken::Expired));
    }

    #[test]
    fn no_change_of_a_token_is_accepted() {
        let tokens = tokens();
        let token = tokens.issue(&anna(), NOW + 60).unwrap();
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(tokens.verify(&changed, NOW), Err(BadToken::Invalid), "byte {at}");
        }
        for rubbish in ["", ".", "..", "a.b.c", &"x".repeat(9_000)] {
            assert_eq!(tokens.verify(rubbish, NOW), Err(BadToken::Invalid));
        }
    }

    /// A header that names another algorithm, signed with whatever is at hand.
    fn forged(tokens: &Tokens, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let tag = hmac::sign(tokens.own.as_ref().unwrap(), signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
    }

    #[test]
    fn a_token_does_not_choose_how_it_is_checked() {
        let tokens = tokens();
        let claims = format!(r#"{{"sub":"anna","exp":{}}}"#, NOW + 60);
        assert!(tokens.verify(&forged(&tokens, r#"{"alg":"HS256"}"#, &claims), NOW).is_ok());
        for header in [
            r#"{"alg":"none"}"#,
            r#"{"alg":"HS512"}"#,
            r#"{"alg":"RS256"}"#,
            r#"{"alg":"hs256"}"#,
            r#"{"alg":"HS256","crit":["b64"]}"#,
        ] {
            let token = forged(&tokens, header, &claims);
            assert_eq!(tokens.verify(&token, NOW), Err(BadToken::Invalid), "{header}");
        }
        let unsigned =
            format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), URL_SAFE_NO_PAD.encode(&claims));
        assert_eq!(tokens.verify(&unsigned, NOW), Err(BadToken::Invalid));
    }

    #[test]
    fn claims_are_checked() {
        let tokens = Tokens { audience: Some("chat".to_owned()), ..tokens() };
        let verdict =
            |claims: &str| tokens.verify(&forged(&tokens, r#"{"alg":"HS256"}"#, claims), NOW).map(drop);
        let soon = NOW + 60;
        assert_eq!(verdict(&format!(r#"{{"sub":"anna","exp":{soon},"aud":"chat"}}"#)), Ok(()));
        assert_eq!(verdict(&format!(r#"{{"sub":"anna","exp":{soon},"aud":["x","chat"]}}"#)), Ok(()));
        for claims in [
            format!(r#"{{"sub":"anna","exp":{soon}}}"#),
            format!(r#"{{"sub":"anna","exp":{soon},"aud":"other"}}"#),
            format!(r#"{{"exp":{soon},"aud":"chat"}}"#),
            format!(r#"{{"sub":"","exp":{soon},"aud":"chat"}}"#),
            r#"{"sub":"anna","aud":"chat"}"#.to_owned(),
            format!(r#"{{"sub":"anna","exp":{soon},"nbf":{soon},"aud":"chat"}}"#),
        ] {
            assert_eq!(verdict(&claims), Err(BadToken::Invalid), "{claims}");
        }
    }

    #[test]
    fn a_public_key_verifies_its_own_algorithm_only() {
        let random = ring::rand::SystemRandom::new();
        let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
        let point = pair.public_key().as_ref();
        let mut info = vec![0x30, 0x59, 0x30, 0x13, 0x06, 0x07];
        info.extend_from_slice(EC);
        info.extend_from_slice(&[0x06, 0x08]);
        info.extend_from_slice(P256);
        info.extend_from_slice(&[0x03, 0x42, 0x00]);
        info.extend_from_slice(point);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        let pem =
            format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(info));
        std::fs::write(&path, pem).unwrap();
        let config = Config { token_public_keys: vec![path.display().to_string()], ..Config::default() };
        let tokens = Tokens::from_config(&config).unwrap();
        assert_eq!(tokens.issue(&anna(), NOW + 60), None, "a public key signs nothing");

        let claims = format!(r#"{{"sub":"anna","exp":{}}}"#, NOW + 60);
        let sign = |header: &str| {
            let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(&claims));
            let tag = pair.sign(&random, signed.as_bytes()).unwrap();
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
        };
        assert!(tokens.verify(&sign(r#"{"alg":"ES256"}"#), NOW).is_ok());
        assert_eq!(tokens.verify(&sign(r#"{"alg":"RS256"}"#), NOW), Err(BadToken::Invalid));
        // The public key as if it were a secret: the classic confusion.
        let confused = Tokens { own: Some(hmac::Key::new(hmac::HMAC_SHA256, point)), ..tokens };
        let token = forged(&confused, r#"{"alg":"HS256"}"#, &claims);
        assert_eq!(confused.verify(&token, NOW), Err(BadToken::Invalid));
    }

    #[test]
    fn an_rsa_key_is_recognised_and_rubbish_is_refused() {
        let mut info = vec![0x30, 0x12, 0x30, 0x0b, 0x06, 0x09];
        info.extend_from_slice(RSA);
        info.extend_from_slice(&[0x03, 0x03, 0x00, 0x30, 0x00]);
        assert!(matches!(subject_public_key(&info), Some(Key::Rs256(_))));
        for cut in 0..info.len() {
            assert!(subject_public_key(&info[..cut]).is_none(), "{cut}");
        }
    }
}
