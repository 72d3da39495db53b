//! Who may do what: what a route asks for, what a caller has, and the gate between them.

mod api;
mod attempts;
pub mod audit;
mod credential;
mod desk;
mod door;
mod gate;
mod pages;
mod scope;
mod session;
mod token;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::request::Parts;
use hob_database::UnixMs;

pub(crate) use attempts::Attempts;
pub(crate) use credential::random_id;
pub(crate) use door::Door;
pub(crate) use gate::gate;
pub use scope::{BadScope, Scope};
pub use token::{Creation, NewToken, Scopes, Token, TokenId, Tokens};

use crate::{Problem, Routes, Web};

/// What a route asks of whoever calls it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nothing.
    Public,
    /// To be known, with whatever rights.
    Known,
    /// To have this scope.
    Scope(Scope),
}

/// Who is calling, and what they may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    name: Arc<str>,
    scopes: Arc<[Scope]>,
}

/// Signing in and out, tokens, the audit trail.
pub(crate) fn routes(web: &Web) -> Routes {
    pages::routes().merge(api::routes()).merge(desk::routes()).with_state(web.clone())
}

/// This machine's clock, which decides when what it was told has expired.
fn now() -> UnixMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

impl Access {
    /// To look at what a service has.
    #[must_use]
    pub const fn read(service: &'static str) -> Self {
        Self::Scope(Scope::read(service))
    }

    /// To change something of a service.
    #[must_use]
    pub const fn write(service: &'static str) -> Self {
        Self::Scope(Scope::write(service))
    }

    /// To do everything.
    #[must_use]
    pub const fn admin() -> Self {
        Self::Scope(Scope::Admin)
    }
}

impl Caller {
    pub(crate) fn new(name: &str, scopes: impl Into<Arc<[Scope]>>) -> Self {
        Self { name: name.into(), scopes: scopes.into() }
    }

    /// What the audit trail calls them.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
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
            Self::Known => f.write_str("known"),
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

/// For public routes, which may be called by nobody in particular.
impl<S: Send + Sync> OptionalFromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Problem> {
        Ok(parts.extensions.get().cloned())
    }
}
