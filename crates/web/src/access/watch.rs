//! Ends streams and sockets when the credential behind them is revoked or expires.
//!
//! Every node checks the credentials of its open streams in the database every two seconds, so that a revocation does
//! not depend on messages between nodes, which can be lost. After a revocation, the node that executed it checks at
//! once.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use futures_util::stream::{self, StreamExt as _};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Caller;
use super::authenticator::{Authenticator, STALE_FOR, lock};
use super::credential::Hash;
use crate::console::AppContext;
use crate::{Problem, Web};

/// How often the credentials of open streams are checked.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// How many credentials are checked at a time.
const CONCURRENT_CHECKS: usize = 4;

/// What gives a request access.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum CredentialKey {
    /// No credential, because the server has no admin token.
    Open,
    /// The admin token or an API token.
    Bearer(Hash),
    Session(Hash),
}

/// The credential of a request. It is needed by everything that outlives the request: streams, sockets, and tokens that
/// are issued with it. An extractor.
#[derive(Clone)]
pub struct Credential {
    web: Web,
    /// `None`: an anonymous caller.
    key: Option<CredentialKey>,
}

/// Waits for the end of a credential. Clones wait for the same.
#[derive(Clone, Debug, Default)]
pub struct CredentialWatch(Option<Arc<Watched>>);

/// The credentials of open streams.
#[derive(Default)]
pub(super) struct WatchedCredentials {
    open: Mutex<HashMap<CredentialKey, Weak<Watched>>>,
    recheck: Notify,
}

#[derive(Debug)]
struct Watched {
    key: CredentialKey,
    ended: CancellationToken,
    checked: Mutex<LastCheck>,
}

#[derive(Debug)]
struct LastCheck {
    at: Instant,
    /// `None` before the first check.
    caller: Option<Caller>,
}

impl Credential {
    /// Waits for the end of this credential, from now on. Never ends for an anonymous caller.
    #[must_use]
    pub fn watch(&self) -> CredentialWatch {
        let watched = &self.web.authenticator().watched;
        CredentialWatch(self.key.as_ref().map(|key| watched.watch(key)))
    }

    /// Whether the credential is valid now. The result is not cached.
    pub async fn is_valid(&self) -> Result<bool, hob_database::Error> {
        match &self.key {
            Some(key) => Ok(self.web.authenticator().caller_of(key).await?.is_some()),
            None => Ok(true),
        }
    }

    /// A reference to the credential, for tokens that are issued with it. It reveals nothing, because API tokens and
    /// sessions are random. An admin token has no reference, because it may be a phrase that could be guessed.
    #[must_use]
    pub fn reference(&self) -> Option<String> {
        match self.key.as_ref()? {
            CredentialKey::Open => Some("open".to_owned()),
            CredentialKey::Bearer(hash) if self.web.authenticator().is_admin(hash) => None,
            CredentialKey::Bearer(hash) => Some(format!("token:{}", hash.to_text())),
            CredentialKey::Session(hash) => Some(format!("session:{}", hash.to_text())),
        }
    }

    /// The credential with this [`reference`](Self::reference). `None` if it is malformed.
    #[must_use]
    pub fn by_reference(&self, reference: &str) -> Option<Self> {
        let key = match reference.split_once(':') {
            None if reference == "open" => CredentialKey::Open,
            Some(("token", text)) => CredentialKey::Bearer(Hash::from_text(text)?),
            Some(("session", text)) => CredentialKey::Session(Hash::from_text(text)?),
            _ => return None,
        };
        Some(Self { web: self.web.clone(), key: Some(key) })
    }
}

impl CredentialWatch {
    /// Waits until the credential is revoked or has expired, or its caller has other scopes.
    pub async fn ended(&self) {
        match &self.0 {
            Some(watched) => watched.ended.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

impl WatchedCredentials {
    fn watch(&self, key: &CredentialKey) -> Arc<Watched> {
        let mut open = lock(&self.open);
        if let Some(watched) = open.get(key).and_then(Weak::upgrade)
            && !watched.ended.is_cancelled()
        {
            return watched;
        }
        let checked = Mutex::new(LastCheck { at: Instant::now(), caller: None });
        let watched = Arc::new(Watched { key: key.clone(), ended: CancellationToken::new(), checked });
        open.insert(key.clone(), Arc::downgrade(&watched));
        watched
    }

    /// The credentials of streams that are still open.
    fn open(&self) -> Vec<Arc<Watched>> {
        let mut open = lock(&self.open);
        open.retain(|_, watched| watched.strong_count() > 0);
        open.values().filter_map(Weak::upgrade).collect()
    }

    /// Makes the next check start now.
    pub(super) fn recheck(&self) {
        self.recheck.notify_one();
    }
}

impl Watched {
    /// Ends the streams if the caller has changed since the last check.
    fn confirm(&self, caller: Option<Caller>) {
        let mut checked = lock(&self.checked);
        if caller.is_none() || (checked.caller.is_some() && checked.caller != caller) {
            self.ended.cancel();
        }
        *checked = LastCheck { at: Instant::now(), caller };
    }

    /// While the database is unavailable, streams stay open as long as requests with the same credential are accepted.
    fn not_checked(&self) {
        if lock(&self.checked).at.elapsed() > STALE_FOR {
            self.ended.cancel();
        }
    }
}

impl Authenticator {
    /// Waits until credentials have changed on this node.
    pub(crate) async fn recheck_requested(&self) {
        self.watched.recheck.notified().await;
    }

    /// Ends the streams whose credentials are no longer valid.
    pub(crate) async fn check_streams(&self) {
        stream::iter(self.watched.open())
            .for_each_concurrent(CONCURRENT_CHECKS, async |watched| {
                match self.caller_of(&watched.key).await {
                    Ok(caller) => watched.confirm(caller),
                    Err(error) => {
                        tracing::debug!(%error, "failed to check the credential of an open stream, retrying");
                        watched.not_checked();
                    }
                }
            })
            .await;
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Credential {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(frame) = parts.extensions.get::<AppContext>() else {
            return Err(Problem::internal("the route of this request was not registered through `App`"));
        };
        let web = frame.web().clone();
        let key = web.authenticator().key_of(&parts.headers);
        Ok(Self { web, key })
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("key", &self.key).finish_non_exhaustive()
    }
}
