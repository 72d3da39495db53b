//! What stands behind the faces: the house, who may enter it.

use std::fmt;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use hob_house::config::Secret;
use hob_house::{House, Live};

use crate::{Caller, Config, Error, Problem, Scope};

/// The web of one process. Clones are handles to the same.
#[derive(Clone)]
pub struct Web {
    inner: Arc<Inner>,
}

struct Inner {
    house: House,
    config: Live<Config>,
    admin: Option<Secret>,
}

/// The shortest admin token that nobody guesses.
const SHORTEST_ADMIN_TOKEN: usize = 16;

impl Web {
    /// Reads what the configuration refers to. Refuses to be open to everybody on an address that others can reach.
    pub fn open(house: &House, config: Live<Config>) -> Result<Self, Error> {
        let now = config.now();
        let admin = now.admin_token.as_ref().map(hob_house::SecretRef::read).transpose()?;
        match &admin {
            None if !now.listen.ip().is_loopback() => return Err(Error::OpenToAll(now.listen)),
            Some(secret) if secret.reveal().len() < SHORTEST_ADMIN_TOKEN => {
                return Err(Error::ShortAdminToken { least: SHORTEST_ADMIN_TOKEN });
            }
            _ => {}
        }
        Ok(Self { inner: Arc::new(Inner { house: house.clone(), config, admin }) })
    }

    #[must_use]
    pub fn house(&self) -> &House {
        &self.inner.house
    }

    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        self.inner.config.now()
    }

    pub(crate) fn speaks_tls(&self) -> bool {
        self.config().tls_certificate.is_some()
    }

    /// Who sends a request with these headers; `None` for nobody in particular.
    pub(crate) fn identify(&self, headers: &HeaderMap) -> Result<Option<Caller>, Problem> {
        let Some(admin) = &self.inner.admin else {
            return Ok(Some(Caller::new("this machine", [Scope::Admin])));
        };
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = bearer.and_then(|value| value.strip_prefix("Bearer "));
        Ok(given.filter(|given| *given == admin.reveal()).map(|_| Caller::new("admin", [Scope::Admin])))
    }
}

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web").field("house", &self.inner.house).finish_non_exhaustive()
    }
}
