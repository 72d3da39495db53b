//! A sign-in in progress: the data that the browser keeps in a cookie until the provider sends the browser back.
//!
//! The cookie contains one random secret. State, nonce and PKCE verifier are derived from it with HMAC. The server
//! stores nothing, so any node can finish a sign-in that another node has started, and clients that start many sign-ins
//! cannot fill a table. The state covers everything in the cookie: the provider returns the state that was sent to it,
//! so a cookie with another expiry or another page to return to does not match it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hob_database::UnixMs;
use ring::digest::{SHA256, digest};
use ring::hmac;

use super::config::OidcConfig;
use crate::access::credential::{self, Hash};

/// How long a user may take to sign in at the provider.
pub(super) const LOGIN_TTL_S: i64 = 600;

/// Longer paths are not kept: a cookie has at most 4 KiB.
const MAX_PATH_BYTES: usize = 1_024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Login {
    secret: String,
    expires_s: i64,
    /// The page that the user wanted to see.
    to: String,
}

impl Login {
    pub(super) fn begin(to: &str) -> Self {
        let to = if to.len() <= MAX_PATH_BYTES { to } else { "/" };
        let expires_s = UnixMs::now().0 / 1_000 + LOGIN_TTL_S;
        Self { secret: credential::random(), expires_s, to: to.to_owned() }
    }

    /// The login in a cookie. `None` if it is malformed or has expired.
    pub(super) fn from_cookie(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let (secret, expires_s, to) = (parts.next()?, parts.next()?, parts.next()?);
        let to = String::from_utf8(URL_SAFE_NO_PAD.decode(to).ok()?).ok()?;
        let login = Self { secret: secret.to_owned(), expires_s: expires_s.parse().ok()?, to };
        (login.expires_s > UnixMs::now().0 / 1_000).then_some(login)
    }

    pub(super) fn to_cookie(&self) -> String {
        format!("{}.{}.{}", self.secret, self.expires_s, URL_SAFE_NO_PAD.encode(&self.to))
    }

    /// The page to return to. Check it before a redirect: it comes from a cookie.
    pub(super) fn to(&self) -> &str {
        &self.to
    }

    /// Binds the answer of the provider to this browser.
    pub(super) fn state(&self, config: &OidcConfig) -> String {
        self.derive("state", config)
    }

    /// Whether the provider has returned the state of this login.
    pub(super) fn has_state(&self, state: &str, config: &OidcConfig) -> bool {
        Hash::of(state).is(Hash::of(&self.state(config)).bytes())
    }

    /// Binds the ID token to this browser.
    pub(super) fn nonce(&self, config: &OidcConfig) -> String {
        self.derive("nonce", config)
    }

    /// The PKCE verifier, which is sent together with the code.
    pub(super) fn verifier(&self, config: &OidcConfig) -> String {
        self.derive("verifier", config)
    }

    /// The PKCE challenge (S256).
    pub(super) fn challenge(&self, config: &OidcConfig) -> String {
        URL_SAFE_NO_PAD.encode(digest(&SHA256, self.verifier(config).as_bytes()))
    }

    /// No part may contain a line break, except the last one.
    fn derive(&self, purpose: &str, config: &OidcConfig) -> String {
        let (issuer, client) = (&config.issuer, URL_SAFE_NO_PAD.encode(&config.client_id));
        let text = format!("{purpose}\n{issuer}\n{client}\n{}\n{}", self.expires_s, self.to);
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.secret.as_bytes());
        URL_SAFE_NO_PAD.encode(hmac::sign(&key, text.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(client: &str) -> OidcConfig {
        serde_json::from_value(serde_json::json!({
            "issuer": "https://login.example.com",
            "client_id": client,
            "redirect_url": "https://hob.example.com/sign-in/oidc/callback",
            "roles": [{"group": "sre", "role": "admin"}],
        }))
        .unwrap()
    }

    #[test]
    fn login_survives_its_cookie() {
        let login = Login::begin("/uptime?tab=1.2");
        assert_eq!(Login::from_cookie(&login.to_cookie()), Some(login.clone()));
        assert_eq!(login.to(), "/uptime?tab=1.2");
        assert!(login.has_state(&login.state(&config("hob")), &config("hob")));
        assert!((43..=128).contains(&login.verifier(&config("hob")).len()), "RFC 7636");
        assert_eq!(Login::begin(&format!("/{}", "x".repeat(2_000))).to(), "/");
    }

    #[test]
    fn values_of_a_login_are_different_and_of_no_other_login() {
        let (config, other) = (config("hob"), config("other"));
        let (one, two) = (Login::begin("/"), Login::begin("/"));
        let all = [
            one.state(&config),
            one.nonce(&config),
            one.verifier(&config),
            one.challenge(&config),
            one.state(&other),
            two.state(&config),
        ];
        let distinct: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(distinct.len(), all.len(), "{all:?}");
    }

    #[test]
    fn changed_cookie_does_not_match_the_state() {
        let login = Login::begin("/");
        let state = login.state(&config("hob"));
        for changed in [
            Login { to: "/access".to_owned(), ..login.clone() },
            Login { expires_s: login.expires_s + 1, ..login.clone() },
            Login { secret: credential::random(), ..login.clone() },
        ] {
            assert!(!changed.has_state(&state, &config("hob")), "{changed:?}");
        }
        let late = Login { expires_s: 1, ..login };
        assert_eq!(Login::from_cookie(&late.to_cookie()), None, "expired");
        for text in ["", ".", "a.b.c", "a.9999999999", "a.9999999999.!"] {
            assert_eq!(Login::from_cookie(text), None, "{text:?}");
        }
    }
}
