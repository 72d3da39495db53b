//! Sign-in with OpenID Connect: authorization code with PKCE.
//!
//! The browser is sent to the provider and comes back with a code, which this server exchanges for an ID token. The
//! groups in the token decide the scopes of the session. The groups are read once, at sign-in. The scopes of a group
//! are looked up for every request, so that a reloaded configuration takes effect on existing sessions.

mod config;
mod id_token;
mod login;
mod provider;
mod routes;

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use hob_net::{HttpClientError, Outbound, TlsError, client_tls};
use hob_service::config::SecretError;
use hob_service::{Live, SecretRef};
use http::StatusCode;
use tokio::sync::Semaphore;
use url::Url;

use crate::access::jwks::JwksError;
pub use config::{Issuer, OidcConfig, RedirectUrl, RoleRule, Roles, SignInConfig};
use id_token::TokenError;
use login::Login;
use provider::{Provider, Redeemed};
pub(super) use routes::routes;

/// The URL to which the provider sends the browser back.
pub(crate) const CALLBACK_PATH: &str = "/sign-in/oidc/callback";

/// The maximum number of codes that are exchanged at the same time.
const MAX_EXCHANGES: usize = 64;

/// Signs users in with the configured provider, if there is one.
pub(crate) struct Oidc {
    config: Live<SignInConfig>,
    outbound: Outbound,
    provider: Mutex<Option<Arc<Provider>>>,
    exchanges: Semaphore,
}

/// A user of the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    /// Issuer and subject, which never change.
    pub(super) subject: String,
    /// The name for people.
    pub(super) name: String,
    /// The groups that have a rule.
    pub(super) groups: Vec<String>,
}

/// The result of a sign-in at the provider.
#[derive(Debug)]
enum SignIn {
    Accepted(User),
    Refused(Refusal),
}

/// Why a sign-in is refused.
#[derive(Debug)]
enum Refusal {
    /// The provider does not accept the code.
    BadCode,
    BadToken(TokenError),
    /// No group of the user has a rule.
    NoRole(User),
}

/// Why the provider could not be used.
#[derive(Debug, thiserror::Error)]
enum OidcError {
    #[error("cannot fetch {url}: {source}")]
    Unreachable { url: String, source: HttpClientError },
    #[error("{url} responded with status {status} {error}")]
    Status { url: String, status: StatusCode, error: String },
    #[error("cannot use the response of {url}: {reason}")]
    Document { url: String, reason: String },
    #[error("a request to the provider failed a moment ago; Hob waits before the next one")]
    FailedBefore,
    #[error(transparent)]
    Keys(#[from] JwksError),
    #[error("too many sign-ins at the same time")]
    TooMany,
    #[error("client_secret: {0}")]
    Secret(#[from] SecretError),
    #[error("the client secret cannot be sent in an HTTP header: {0}")]
    Header(http::header::InvalidHeaderValue),
    #[error("ca_file: {0}")]
    Tls(#[from] TlsError),
}

impl Oidc {
    pub(crate) fn new(config: Live<SignInConfig>, outbound: &Outbound) -> Self {
        let exchanges = Semaphore::new(MAX_EXCHANGES);
        Self { config, outbound: outbound.clone(), provider: Mutex::default(), exchanges }
    }

    /// The text of the button on the sign-in page; `None` without a provider.
    pub(super) fn label(&self) -> Option<String> {
        self.config.current().oidc.as_ref().map(|config| config.label().to_owned())
    }

    /// The provider of the current configuration. A changed configuration starts with an empty cache.
    fn provider(&self) -> Result<Option<Arc<Provider>>, OidcError> {
        let config = self.config.current();
        let mut provider = self.provider.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(config) = &config.oidc else {
            *provider = None;
            return Ok(None);
        };
        if let Some(provider) = provider.as_ref().filter(|provider| provider.config == *config) {
            return Ok(Some(Arc::clone(provider)));
        }
        let new = Arc::new(Provider::new(config, &self.outbound)?);
        *provider = Some(Arc::clone(&new));
        Ok(Some(new))
    }

    /// Exchanges the code of a sign-in whose state has been checked.
    async fn finish(&self, provider: &Provider, code: &str, login: &Login) -> Result<SignIn, OidcError> {
        let _permit = self.exchanges.try_acquire().map_err(|_| OidcError::TooMany)?;
        let claims = match provider.redeem(code, login).await? {
            Redeemed::Claims(claims) => claims,
            Redeemed::BadCode => return Ok(SignIn::Refused(Refusal::BadCode)),
            Redeemed::BadToken(error) => return Ok(SignIn::Refused(Refusal::BadToken(error))),
        };
        let config = &provider.config;
        let user = User {
            subject: config.subject(&claims.sub),
            name: claims.name(),
            groups: config.roles.listed(&claims.groups(&config.groups_claim)),
        };
        let is_allowed = config.scopes(&user.subject, &user.groups).is_some();
        Ok(if is_allowed { SignIn::Accepted(user) } else { SignIn::Refused(Refusal::NoRole(user)) })
    }
}

impl SignInConfig {
    /// Reads the files that the settings name.
    pub(crate) fn check(&self) -> Result<(), crate::Error> {
        let Some(oidc) = &self.oidc else { return Ok(()) };
        oidc.client_secret.as_ref().map(SecretRef::read).transpose().map_err(crate::Error::ClientSecret)?;
        client_tls(oidc.ca_file.as_deref())?;
        Ok(())
    }
}

impl OidcError {
    fn unreachable(url: &Url, source: HttpClientError) -> Self {
        Self::Unreachable { url: url.to_string(), source }
    }

    fn document(url: &Url, reason: &dyn Display) -> Self {
        Self::Document { url: url.to_string(), reason: reason.to_string() }
    }
}
