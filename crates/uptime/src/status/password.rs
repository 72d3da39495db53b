//! Passwords of status pages: a salted hash in the database, and the signed cookie of a reader who has entered the password.
//!
//! The signing key is the hash itself, so a changed password ends all visits, on every node and without stored sessions.

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::{hmac, pbkdf2};
use tokio::sync::Semaphore;

use super::page::Slug;

pub(crate) const MIN_PASSWORD_BYTES: usize = 8;
pub(crate) const MAX_PASSWORD_BYTES: usize = 128;

const ITERATIONS: NonZeroU32 = NonZeroU32::new(200_000).unwrap();
const ALGORITHM: pbkdf2::Algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
const NAME: &str = "pbkdf2-sha256";

/// Passwords that are hashed at the same time. A hash takes much CPU time.
static HASHING: Semaphore = Semaphore::const_new(2);

/// A salted hash of a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PasswordHash {
    iterations: NonZeroU32,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

impl PasswordHash {
    pub(crate) async fn of(password: &str) -> Self {
        let salt = rand::random::<[u8; 16]>().to_vec();
        let (password, salted) = (password.to_owned(), salt.clone());
        let hash = hashing(move || {
            let mut hash = vec![0; 32];
            pbkdf2::derive(ALGORITHM, ITERATIONS, &salted, password.as_bytes(), &mut hash);
            hash
        });
        Self { iterations: ITERATIONS, salt, hash: hash.await }
    }

    /// Whether this is the password. Takes the same time for every wrong one.
    pub(crate) async fn matches(&self, password: &str) -> bool {
        let (this, password) = (self.clone(), password.to_owned());
        let check = move || {
            pbkdf2::verify(ALGORITHM, this.iterations, &this.salt, password.as_bytes(), &this.hash).is_ok()
        };
        hashing(check).await
    }

    pub(crate) fn to_text(&self) -> String {
        let (salt, hash) = (URL_SAFE_NO_PAD.encode(&self.salt), URL_SAFE_NO_PAD.encode(&self.hash));
        format!("{NAME}${}${salt}${hash}", self.iterations)
    }

    /// Reads the text of [`to_text`](Self::to_text).
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let mut parts = text.split('$');
        let (name, iterations, salt, hash) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
        let read = Self { iterations: iterations.parse().ok()?, salt: decode(salt)?, hash: decode(hash)? };
        (name == NAME && read.hash.len() == 32).then_some(read)
    }

    /// The value of a cookie that lets its holder read the page until then.
    pub(crate) fn cookie(&self, slug: &Slug, expires_s: u64) -> String {
        let signature = hmac::sign(&self.key(), signed(slug, expires_s).as_bytes());
        format!("{expires_s}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// Whether this cookie was issued for the page and is valid at this time.
    pub(crate) fn accepts_cookie(&self, slug: &Slug, value: &str, now_s: u64) -> bool {
        let Some((expires, signature)) = value.split_once('.') else { return false };
        let (Ok(expires_s), Ok(signature)) = (expires.parse::<u64>(), URL_SAFE_NO_PAD.decode(signature))
        else {
            return false;
        };
        let known = hmac::verify(&self.key(), signed(slug, expires_s).as_bytes(), &signature);
        known.is_ok() && now_s < expires_s
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.hash)
    }
}

fn signed(slug: &Slug, expires_s: u64) -> String {
    format!("status page {slug} until {expires_s}")
}

/// Runs a hash on a thread for blocking work.
async fn hashing<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    // Never closed.
    let _permit = HASHING.acquire().await;
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Hides the hash.
impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PasswordHash(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_password_matches() {
        let hash = PasswordHash::of("correct horse").await;
        let read = PasswordHash::from_text(&hash.to_text()).unwrap();
        assert_eq!(read, hash);
        assert!(read.matches("correct horse").await);
        assert!(!read.matches("correct horsf").await && !read.matches("").await);
        assert_ne!(PasswordHash::of("correct horse").await, hash, "the salt is random");
    }

    #[tokio::test]
    async fn cookie_is_valid_for_its_page_password_and_time() {
        let (shop, blog) = (Slug::new("shop").unwrap(), Slug::new("blog").unwrap());
        let (hash, other) =
            (PasswordHash::of("correct horse").await, PasswordHash::of("battery staple").await);
        let cookie = hash.cookie(&shop, 1_000);
        assert!(hash.accepts_cookie(&shop, &cookie, 999));
        assert!(!hash.accepts_cookie(&shop, &cookie, 1_000));
        assert!(!hash.accepts_cookie(&blog, &cookie, 999));
        assert!(!other.accepts_cookie(&shop, &cookie, 999));
        assert!(!hash.accepts_cookie(&shop, &cookie.replacen("1000", "9000", 1), 999));
        for text in ["", "1000", "1000.", ".x", "x.y"] {
            assert!(!hash.accepts_cookie(&shop, text, 1), "{text}");
        }
    }
}
