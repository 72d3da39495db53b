//! JSON Web Tokens, which identify users. Each key has exactly one algorithm, so a token cannot choose how it is
//! verified, and `none` is never accepted.

mod published;

use std::fmt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hob_database::UnixMs;
use hob_net::Outbound;
use hob_service::SecretRef;
use hob_service::config::Secret;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::keys::{NamedChannel, UserId};
use crate::session::protocol::one_line;
use crate::{Config, Error};
use published::PublishedKeys;

/// Longer tokens are rejected unread.
const MAX_BYTES: usize = 8 * 1024;
/// The clock skew that is tolerated, in seconds.
const LEEWAY_S: i64 = 5;
/// The shortest secret for HS256.
const MIN_SECRET_BYTES: usize = 16;
/// The longest `info` of a subscription, in bytes.
const MAX_INFO_BYTES: usize = 2 * 1024;
/// How the base64 of every P-256 public key begins: algorithm, curve, and the marker of an uncompressed point.
/// `jsonwebtoken` accepts keys of other curves, with which ES256 never verifies.
const P256_PREFIX: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE";

/// The keys that verify tokens, and the one that signs them.
pub struct Tokens {
    verifiers: Vec<Verifier>,
    published: Option<PublishedKeys>,
    /// Signs the tokens that this process issues.
    signing_key: Option<EncodingKey>,
    audience: Option<String>,
    issuer: Option<String>,
}

/// A key and the one algorithm that it is for.
pub(crate) struct Verifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

/// The user and expiry of a valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub user: UserId,
    /// When the token expires, in Unix seconds.
    pub expires_s: i64,
    /// When the token was issued, in Unix milliseconds; 0 if the token does not have this claim.
    pub issued_ms: i64,
    /// The credential that the token ends with, if this server issued it.
    pub credential: Option<String>,
}

/// A valid token for one channel.
#[derive(Clone, Debug)]
pub(crate) struct VerifiedSubscription {
    pub(crate) user: UserId,
    pub(crate) channel: NamedChannel,
    /// When the subscription expires, in Unix seconds.
    pub(crate) expires_s: i64,
    /// JSON that other subscribers see of the client, or nothing.
    pub(crate) info: Vec<u8>,
}

/// Why a token is rejected. Gives no further detail, so that an attacker learns nothing from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadToken {
    Invalid,
    Expired,
    /// The keys that could verify it are not available now.
    Unavailable,
}

#[derive(Deserialize)]
struct CriticalHeader {
    #[serde(default)]
    crit: Option<serde::de::IgnoredAny>,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    sub: String,
    exp: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nbf: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    iat: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hob_credential: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    aud: Option<Audience>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    iss: Option<String>,
    /// The channel of a token for a subscription. The token of a connection has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    channel: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    info: Option<Box<RawValue>>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Tokens {
    /// Loads the keys that the configuration names. If it names none, generates a secret for this process.
    pub fn from_config(config: &Config, outbound: &Outbound) -> Result<Self, Error> {
        let mut verifiers = Vec::new();
        let mut secret = None;
        if let Some(source) = &config.token_secret {
            let value =
                read_secret(source).map_err(|reason| Error::Config(format!("token_secret: {reason}")))?;
            secret = Some(value.reveal().as_bytes().to_vec());
        }
        for path in &config.token_public_keys {
            let key = public_key(Path::new(path));
            verifiers.push(key.map_err(|reason| Error::Config(format!("token_public_keys: {reason}")))?);
        }
        let published = PublishedKeys::from_config(config, outbound)?;
        if secret.is_none() && verifiers.is_empty() && published.is_none() {
            secret = Some(rand::random::<[u8; 32]>().to_vec());
        }
        if let Some(secret) = &secret {
            verifiers.push(Verifier { algorithm: Algorithm::HS256, key: DecodingKey::from_secret(secret) });
        }
        let signing_key = secret.map(|secret| EncodingKey::from_secret(&secret));
        let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let (audience, issuer) = (some(&config.token_audience), some(&config.token_issuer));
        Ok(Self { verifiers, published, signing_key, audience, issuer })
    }

    /// Verifies the token of a connection at a time in Unix seconds.
    pub async fn verify(&self, token: &str, now_s: i64) -> Result<Verified, BadToken> {
        let claims = self.claims(token).await?;
        // A token for one channel must not sign in.
        if claims.channel.is_some() {
            return Err(BadToken::Invalid);
        }
        self.accept(&claims, now_s)
    }

    /// Verifies the token of a subscription.
    pub(crate) async fn verify_subscription(
        &self,
        token: &str,
        now_s: i64,
    ) -> Result<VerifiedSubscription, BadToken> {
        let claims = self.claims(token).await?;
        let channel = claims.channel.as_ref().and_then(|channel| NamedChannel::new(channel.as_str()).ok());
        let channel = channel.ok_or(BadToken::Invalid)?;
        if claims.info.as_ref().is_some_and(|info| info.get().len() > MAX_INFO_BYTES) {
            return Err(BadToken::Invalid);
        }
        let Verified { user, expires_s, .. } = self.accept(&claims, now_s)?;
        let info = claims.info.map(|info| one_line(info.get()).into_owned().into_bytes()).unwrap_or_default();
        Ok(VerifiedSubscription { user, channel, expires_s, info })
    }

    /// The claims of a token with a valid signature.
    async fn claims(&self, token: &str) -> Result<Claims, BadToken> {
        if token.len() > MAX_BYTES || has_critical_extensions(token) {
            return Err(BadToken::Invalid);
        }
        if let Some(claims) = self.verifiers.iter().find_map(|verifier| verifier.decode(token)) {
            return Ok(claims);
        }
        match &self.published {
            Some(keys) => keys.claims(token).await,
            None => Err(BadToken::Invalid),
        }
    }

    fn accept(&self, claims: &Claims, now_s: i64) -> Result<Verified, BadToken> {
        let user = UserId::new(claims.sub.as_str()).map_err(|_| BadToken::Invalid)?;
        let expires_s = claims.exp as i64;
        if let Some(wanted) = &self.audience
            && !claims.aud.as_ref().is_some_and(|audience| audience.contains(wanted))
        {
            return Err(BadToken::Invalid);
        }
        if self.issuer.is_some() && claims.iss != self.issuer {
            return Err(BadToken::Invalid);
        }
        if claims.nbf.is_some_and(|from| from as i64 > now_s + LEEWAY_S) {
            return Err(BadToken::Invalid);
        }
        if expires_s.saturating_add(LEEWAY_S) <= now_s {
            return Err(BadToken::Expired);
        }
        let issued_ms = claims.iat.map_or(0, |at| (at * 1_000.0).round() as i64);
        Ok(Verified { user, expires_s, issued_ms, credential: claims.hob_credential.clone() })
    }

    /// Issues a token for a user, if this process has a secret.
    pub fn issue(&self, user: &UserId, expires_s: i64) -> Option<String> {
        self.issue_with(None, user, expires_s, None)
    }

    /// Issues a token that ends with a credential: for a connection, or for a subscription to a channel.
    pub(crate) fn issue_with(
        &self,
        credential: Option<String>,
        user: &UserId,
        expires_s: i64,
        channel: Option<&NamedChannel>,
    ) -> Option<String> {
        let claims = Claims {
            sub: user.to_string(),
            exp: expires_s as f64,
            nbf: None,
            // The time has milliseconds, so that a token that is issued right after a revocation is valid.
            iat: Some(UnixMs::now().0 as f64 / 1_000.0),
            hob_credential: credential,
            aud: self.audience.clone().map(Audience::One),
            iss: self.issuer.clone(),
            channel: channel.map(ToString::to_string),
            info: None,
        };
        encode(&Header::new(Algorithm::HS256), &claims, self.signing_key.as_ref()?).ok()
    }
}

impl Verifier {
    /// The claims, if the token has this key's algorithm and its signature is valid.
    ///
    /// Only the signature is left to `jsonwebtoken`: [`Tokens::accept`] checks the claims, at a given time and by
    /// their types.
    fn decode(&self, token: &str) -> Option<Claims> {
        let mut validation = Validation::new(self.algorithm);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        decode(token, &self.key, &validation).ok().map(|token| token.claims)
    }
}

impl Audience {
    fn contains(&self, wanted: &str) -> bool {
        match self {
            Self::One(name) => name == wanted,
            Self::Many(names) => names.iter().any(|name| name == wanted),
        }
    }
}

/// Whether the header has `crit`. Such extensions must be understood or rejected, and `jsonwebtoken` ignores them.
/// A header that cannot be read has none: decoding rejects it.
fn has_critical_extensions(token: &str) -> bool {
    let header = token.split('.').next().and_then(|header| URL_SAFE_NO_PAD.decode(header).ok());
    let header = header.and_then(|json| serde_json::from_slice::<CriticalHeader>(&json).ok());
    header.is_some_and(|header| header.crit.is_some())
}

/// Reads the secret that signs tokens.
pub(crate) fn read_secret(source: &SecretRef) -> Result<Secret, String> {
    let value = source.read().map_err(|error| error.to_string())?;
    if value.reveal().len() < MIN_SECRET_BYTES {
        return Err(format!("the secret is too short; use at least {MIN_SECRET_BYTES} bytes"));
    }
    Ok(value)
}

/// Reads the first block between `-----BEGIN PUBLIC KEY-----` and its end.
pub(crate) fn public_key(path: &Path) -> Result<Verifier, String> {
    let bad = |reason: &str| format!("{}: {reason}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| bad(&error.to_string()))?;
    parse_public_key(&text).ok_or_else(|| bad("not an RSA or P-256 public key in PEM (BEGIN PUBLIC KEY)"))
}

fn parse_public_key(text: &str) -> Option<Verifier> {
    let (begin, end) = ("-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----");
    let (_, rest) = text.split_once(begin)?;
    let (body, _) = rest.split_once(end)?;
    let pem = format!("{begin}{body}{end}");
    if let Ok(key) = DecodingKey::from_rsa_pem(pem.as_bytes()) {
        return Some(Verifier { algorithm: Algorithm::RS256, key });
    }
    if body.split_whitespace().collect::<String>().starts_with(P256_PREFIX)
        && let Ok(key) = DecodingKey::from_ec_pem(pem.as_bytes())
    {
        return Some(Verifier { algorithm: Algorithm::ES256, key });
    }
    None
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("verifiers", &self.verifiers.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use futures_util::FutureExt as _;
    use jsonwebtoken::crypto::sign;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};

    use super::*;

    const NOW: i64 = 1_763_289_000;

    fn tokens() -> Tokens {
        Tokens::from_config(&Config::default(), &Outbound::default()).unwrap()
    }

    /// Keys that are not fetched verify at once.
    fn verify(tokens: &Tokens, token: &str, now_s: i64) -> Result<Verified, BadToken> {
        tokens.verify(token, now_s).now_or_never().expect("no request")
    }

    fn anna() -> UserId {
        UserId::new("anna").unwrap()
    }

    #[test]
    fn token_is_valid_until_it_expires() {
        let tokens = tokens();
        let token = tokens.issue(&anna(), NOW + 60).unwrap();
        let verified = verify(&tokens, &token, NOW).unwrap();
        assert_eq!((verified.user, verified.expires_s), (anna(), NOW + 60));
        assert!(verified.issued_ms > NOW * 1_000, "{}", verified.issued_ms);
        assert_eq!(verify(&tokens, &token, NOW + 66), Err(BadToken::Expired));
    }

    #[test]
    fn modified_token_is_rejected() {
        let tokens = tokens();
        let token = tokens.issue(&anna(), NOW + 60).unwrap();
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(verify(&tokens, &changed, NOW), Err(BadToken::Invalid), "byte {at}");
        }
        for rubbish in ["", ".", "..", "a.b.c", &"x".repeat(9_000)] {
            assert_eq!(verify(&tokens, rubbish, NOW), Err(BadToken::Invalid));
        }
    }

    /// A token with any header, signed with HS256.
    fn forged(tokens: &Tokens, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature =
            sign(signed.as_bytes(), tokens.signing_key.as_ref().unwrap(), Algorithm::HS256).unwrap();
        format!("{signed}.{signature}")
    }

    #[test]
    fn token_cannot_choose_its_algorithm() {
        let tokens = tokens();
        let claims = format!(r#"{{"sub":"anna","exp":{}}}"#, NOW + 60);
        assert!(verify(&tokens, &forged(&tokens, r#"{"alg":"HS256"}"#, &claims), NOW).is_ok());
        for header in [
            r#"{"alg":"none"}"#,
            r#"{"alg":"HS512"}"#,
            r#"{"alg":"RS256"}"#,
            r#"{"alg":"hs256"}"#,
            r#"{"alg":"HS256","crit":["b64"]}"#,
        ] {
            let token = forged(&tokens, header, &claims);
            assert_eq!(verify(&tokens, &token, NOW), Err(BadToken::Invalid), "{header}");
        }
        let unsigned =
            format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), URL_SAFE_NO_PAD.encode(&claims));
        assert_eq!(verify(&tokens, &unsigned, NOW), Err(BadToken::Invalid));
    }

    #[test]
    fn claims_are_checked() {
        let tokens =
            Tokens { audience: Some("chat".to_owned()), issuer: Some("login".to_owned()), ..tokens() };
        let verdict =
            |claims: &str| verify(&tokens, &forged(&tokens, r#"{"alg":"HS256"}"#, claims), NOW).map(drop);
        let soon = NOW + 60;
        let fit = format!(r#""sub":"anna","exp":{soon},"iss":"login""#);
        assert_eq!(verdict(&format!(r#"{{{fit},"aud":"chat"}}"#)), Ok(()));
        assert_eq!(verdict(&format!(r#"{{{fit},"aud":["x","chat"]}}"#)), Ok(()));
        for claims in [
            format!("{{{fit}}}"),
            format!(r#"{{{fit},"aud":"other"}}"#),
            format!(r#"{{{fit},"aud":"chat","nbf":{soon}}}"#),
            format!(r#"{{"exp":{soon},"aud":"chat","iss":"login"}}"#),
            format!(r#"{{"sub":"","exp":{soon},"aud":"chat","iss":"login"}}"#),
            format!(r#"{{"sub":"anna","exp":{soon},"aud":"chat"}}"#),
            format!(r#"{{"sub":"anna","exp":{soon},"aud":"chat","iss":"other"}}"#),
            r#"{"sub":"anna","aud":"chat","iss":"login"}"#.to_owned(),
        ] {
            assert_eq!(verdict(&claims), Err(BadToken::Invalid), "{claims}");
        }
        let own = tokens.issue(&anna(), soon).unwrap();
        assert!(verify(&tokens, &own, NOW).is_ok(), "issued tokens have both claims");
    }

    #[test]
    fn public_key_verifies_only_its_own_algorithm() {
        let random = ring::rand::SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
        let point = pair.public_key().as_ref();
        // The prefix has the first byte of the point.
        let info = format!("{P256_PREFIX}{}", STANDARD.encode(&point[1..]));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{info}\n-----END PUBLIC KEY-----\n");
        std::fs::write(&path, pem).unwrap();
        let config = Config { token_public_keys: vec![path.display().to_string()], ..Config::default() };
        let tokens = Tokens::from_config(&config, &Outbound::default()).unwrap();
        assert_eq!(tokens.issue(&anna(), NOW + 60), None, "a public key cannot sign");

        let claims = format!(r#"{{"sub":"anna","exp":{}}}"#, NOW + 60);
        let sign = |header: &str| {
            let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(&claims));
            let tag = pair.sign(&random, signed.as_bytes()).unwrap();
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
        };
        assert!(verify(&tokens, &sign(r#"{"alg":"ES256"}"#), NOW).is_ok());
        assert_eq!(verify(&tokens, &sign(r#"{"alg":"RS256"}"#), NOW), Err(BadToken::Invalid));
        // The public key used as a secret: the classic algorithm confusion.
        let confused = Tokens { signing_key: Some(EncodingKey::from_secret(point)), ..tokens };
        let token = forged(&confused, r#"{"alg":"HS256"}"#, &claims);
        assert_eq!(verify(&confused, &token, NOW), Err(BadToken::Invalid));
    }

    const RSA: &str = include_str!("../../tests/it/keys/rsa.pub.pem");
    const P256: &str = include_str!("../../tests/it/keys/p256.pub.pem");
    /// Made with `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384 | openssl pkey -pubout`.
    const P384: &str = "-----BEGIN PUBLIC KEY-----
MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAENxjhM4VdDmHm3Eyqja8HGcHxwqzCOW/0
g0A1tRwVeLqmweMMGcvQPKIKjffhTK3+i44YrGhVgJR8GyCPKxv/9d9UK5hvht6x
qPkb5IJZ3SEiD84piebzchTwVoikxLTH
-----END PUBLIC KEY-----
";

    #[test]
    fn key_decides_the_algorithm_and_other_keys_are_rejected() {
        let algorithm = |pem: &str| parse_public_key(pem).map(|verifier| verifier.algorithm);
        assert_eq!(algorithm(RSA), Some(Algorithm::RS256));
        assert_eq!(algorithm(P256), Some(Algorithm::ES256));
        assert_eq!(algorithm(P384), None);
        assert_eq!(algorithm(&RSA.replace("PUBLIC KEY", "PRIVATE KEY")), None);
        for pem in [RSA, P256] {
            let body = pem.find("KEY-----").unwrap() + 8;
            let end = pem.find("-----END").unwrap();
            for cut in (body..end - 8).step_by(4) {
                let short = format!("{}{}", &pem[..cut], &pem[end..]);
                assert_eq!(algorithm(&short), None, "{cut}");
            }
        }
    }

    /// A claim of the wrong type is not a claim that is absent.
    #[test]
    fn claims_of_the_wrong_type_are_rejected() {
        let tokens = tokens();
        for claims in [
            format!(r#"{{"sub":"anna","exp":{},"nbf":"9999999999"}}"#, NOW + 60),
            format!(r#"{{"sub":"anna","exp":"{}"}}"#, NOW + 60),
            format!(r#"{{"sub":7,"exp":{}}}"#, NOW + 60),
        ] {
            let token = forged(&tokens, r#"{"alg":"HS256"}"#, &claims);
            assert_eq!(verify(&tokens, &token, NOW), Err(BadToken::Invalid), "{claims}");
        }
    }
}
