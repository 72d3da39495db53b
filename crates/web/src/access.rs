//! Authentication and authorization: the access that a route requires, the scopes of a caller, tokens and sessions.

mod api;
mod api_key;
pub mod audit;
mod authenticator;
mod authorize;
mod credential;
pub mod jwks;
pub(crate) mod oidc;
mod protected_url;
mod role;
mod scope;
mod session;
mod sign_in;
mod token;
mod token_pages;
mod watch;

use std::sync::Arc;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::request::Parts;

pub use api_key::ApiKeyCheck;
pub use authenticator::cookie_values;
pub(crate) use authenticator::{Authenticator, Identity};
pub use authorize::{AuditDetail, Audited};
pub(crate) use authorize::{RouteRule, authorize};
pub use credential::random as random_secret;
pub(crate) use credential::random_id;
pub use protected_url::ProtectedUrl;
pub use role::Role;
pub use scope::{BadScope, Scope};
pub use token::{NewToken, Scopes, Token, TokenCreation, TokenId, Tokens};
pub(crate) use watch::CHECK_INTERVAL;
pub use watch::{Credential, CredentialWatch};

use crate::{Problem, Routes, Web};

/// The access that a route requires.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// No credentials.
    Public,
    /// Valid credentials with any scope.
    Authenticated,
    /// Credentials with this scope.
    Scope(Scope),
}

/// The authenticated caller and its scopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    name: Arc<str>,
    /// Set for a user who has signed in with OpenID Connect.
    subject: Option<Arc<str>>,
    scopes: Arc<[Scope]>,
}

/// Sign-in and sign-out, tokens, the audit log.
pub(crate) fn routes(web: &Web) -> Routes {
    let sign_in = sign_in::routes().merge(oidc::routes());
    sign_in.merge(api::routes()).merge(token_pages::routes()).with_state(web.clone())
}

impl Access {
    /// Read access to a service.
    #[must_use]
    pub const fn read(service: &'static str) -> Self {
        Self::Scope(Scope::read(service))
    }

    /// Write access to a service.
    #[must_use]
    pub const fn write(service: &'static str) -> Self {
        Self::Scope(Scope::write(service))
    }

    /// Full access.
    #[must_use]
    pub const fn admin() -> Self {
        Self::Scope(Scope::Admin)
    }
}

impl Caller {
    pub(crate) fn new(name: &str, scopes: impl Into<Arc<[Scope]>>) -> Self {
        Self { name: name.into(), subject: None, scopes: scopes.into() }
    }

    pub(crate) fn user(name: &str, subject: &str, scopes: impl Into<Arc<[Scope]>>) -> Self {
        Self { subject: Some(subject.into()), ..Self::new(name, scopes) }
    }

    /// The name in the audit log.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// For a user: the issuer and the subject, which stay the same when the name changes.
    #[must_use]
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    #[must_use]
    pub fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    #[must_use]
    pub fn may(&self, scope: &Scope) -> bool {
        self.scopes.iter().any(|held| held.includes(scope))
    }
}

impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Public => f.write_str("public"),
            Self::Authenticated => f.write_str("known"),
            Self::Scope(scope) => scope.fmt(f),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get().cloned().ok_or_else(Problem::unauthorized)
    }
}

/// For public routes, which callers may use without credentials.
impl<S: Send + Sync> OptionalFromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Problem> {
        Ok(parts.extensions.get().cloned())
    }
}
