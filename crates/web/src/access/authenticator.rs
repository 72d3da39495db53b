//! Identifies the caller of a request by its token or session.
//!
//! Results are cached for a few seconds, so that a busy client does not cause a query for each request. A revocation
//! takes effect at once on the node that executes it, and on the other nodes when their cache expires. While the
//! database is unavailable, cached callers stay authenticated, so that services that only need the store keep working.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderValue, header};
use hob_database::{Database, Read as _, Transaction, UnixMs, sql};
use hob_service::Live;
use hob_service::config::Secret;
use hob_units::AuthThrottle;

use super::audit::Actor;
use super::credential::Hash;
use super::oidc::{SignInConfig, User};
use super::session::{self, Session, SessionCredential};
use super::token::{self, Token, TokenId, Tokens};
use super::watch::{CredentialKey, WatchedCredentials};
use super::{Caller, Scope};

/// How long a result is cached.
const CACHE_FOR: Duration = Duration::from_secs(5);
/// How long a cached result is used while the database is unavailable.
pub(super) const STALE_FOR: Duration = Duration::from_secs(600);
/// The cache is cleared when it has this many entries.
const MAX_CACHED: usize = 10_000;

/// Longer credentials are not valid.
const MAX_CREDENTIAL_BYTES: usize = 512;

pub(crate) struct Authenticator {
    database: Database,
    /// `None`: no credentials are required.
    admin: Mutex<Option<Hash>>,
    /// The scopes of each group of users.
    sign_in: Live<SignInConfig>,
    cached: Mutex<HashMap<Hash, CachedCaller>>,
    /// The times of the last use of tokens that are not yet in the database.
    uses: Mutex<HashMap<TokenId, UnixMs>>,
    throttle: AuthThrottle,
    /// The credentials of open streams.
    pub(super) watched: WatchedCredentials,
}

/// The result of checking the credentials of a request.
pub(crate) enum Identity {
    Caller(Caller),
    /// No valid credentials.
    Anonymous,
    /// The address has sent too many wrong tokens; this token was not checked.
    Throttled(Duration),
}

/// An authenticated caller.
#[derive(Clone)]
struct CachedCaller {
    caller: Caller,
    token: Option<TokenId>,
    until: Option<UnixMs>,
    loaded_at: Instant,
}

/// The credential of a request.
enum Credential {
    Bearer(Hash),
    Session(Hash),
}

/// The owner of the token that is used to sign in.
pub(super) struct TokenOwner {
    pub(super) caller: Caller,
    pub(super) key: SessionCredential,
}

impl Authenticator {
    pub(crate) fn new(database: &Database, admin: Option<&Secret>, sign_in: Live<SignInConfig>) -> Self {
        Self {
            database: database.clone(),
            admin: Mutex::new(admin.map(|secret| Hash::of(secret.reveal()))),
            sign_in,
            cached: Mutex::default(),
            uses: Mutex::default(),
            throttle: AuthThrottle::default(),
            watched: WatchedCredentials::default(),
        }
    }

    /// Replaces the admin token and ends the sessions of the old token. The admin token of a running server cannot be
    /// removed.
    pub(crate) fn replace_admin(&self, admin: &Secret) {
        *lock(&self.admin) = Some(Hash::of(admin.reveal()));
        lock(&self.cached).clear();
        self.watched.recheck();
    }

    /// Whether no credentials are required.
    pub(crate) fn is_open(&self) -> bool {
        lock(&self.admin).is_none()
    }

    pub(crate) fn throttle(&self) -> &AuthThrottle {
        &self.throttle
    }

    /// The caller of a request with these headers from this address.
    pub(crate) async fn identify(
        &self,
        headers: &HeaderMap,
        client: IpAddr,
    ) -> Result<Identity, hob_database::Error> {
        let caller = match credential(headers) {
            Some(Credential::Bearer(hash)) => return self.identify_bearer(hash, client).await,
            _ if self.is_open() => Some(Caller::open()),
            Some(Credential::Session(hash)) => self.cached_or_load(hash, self.session(&hash)).await?,
            None => None,
        };
        Ok(caller.map_or(Identity::Anonymous, Identity::Caller))
    }

    /// Checks a bearer token, unless the address has sent too many wrong ones. An API token that was valid a moment ago
    /// is always checked: it cannot be a guess, and other programs with the same address must not block its owner.
    async fn identify_bearer(&self, hash: Hash, client: IpAddr) -> Result<Identity, hob_database::Error> {
        if let Some(wait) = self.throttle.blocked_for(client)
            && !lock(&self.cached).contains_key(&hash)
        {
            return Ok(Identity::Throttled(wait));
        }
        if self.is_admin(&hash) {
            return Ok(Identity::Caller(Caller::admin()));
        }
        let caller = self.cached_or_load(hash, self.token(&hash)).await?;
        if caller.is_none() {
            self.throttle.record_failure(client, hash.bytes());
        }
        Ok(caller.map_or(Identity::Anonymous, Identity::Caller))
    }

    /// The owner of a token that was sent from this address.
    pub(super) async fn token_owner(
        &self,
        text: &str,
        client: IpAddr,
    ) -> Result<Option<TokenOwner>, hob_database::Error> {
        let hash = Hash::of(text);
        let owner = if text.len() <= MAX_CREDENTIAL_BYTES { self.owner_by_hash(hash).await? } else { None };
        if owner.is_none() {
            self.throttle.record_failure(client, hash.bytes());
        }
        Ok(owner)
    }

    async fn owner_by_hash(&self, hash: Hash) -> Result<Option<TokenOwner>, hob_database::Error> {
        if self.is_admin(&hash) {
            return Ok(Some(TokenOwner { caller: Caller::admin(), key: SessionCredential::Admin(hash) }));
        }
        let found = self.token(&hash).await?;
        Ok(found.and_then(|found| {
            Some(TokenOwner { caller: found.caller, key: SessionCredential::Token(found.token?) })
        }))
    }

    pub(super) async fn create_session(
        &self,
        token_owner: &TokenOwner,
        lasts: Duration,
    ) -> Result<String, hob_database::Error> {
        session::begin(&self.database, &token_owner.key, Actor::from(&token_owner.caller), lasts).await
    }

    /// Creates a session for a user of the OpenID Connect provider.
    pub(super) async fn create_user_session(
        &self,
        user: &User,
        lasts: Duration,
    ) -> Result<String, hob_database::Error> {
        session::begin(&self.database, &SessionCredential::User(user.clone()), Actor::from(user), lasts).await
    }

    /// Ends the session of a request.
    pub(super) async fn end_session(
        &self,
        headers: &HeaderMap,
        who: Actor<'_>,
    ) -> Result<(), hob_database::Error> {
        let Some(hash) = session_cookie(headers) else { return Ok(()) };
        lock(&self.cached).remove(&hash);
        session::end(&self.database, &hash, who).await?;
        self.watched.recheck();
        Ok(())
    }

    /// Revokes a token, on this node at once.
    pub(super) async fn revoke(&self, id: &TokenId, by: Actor<'_>) -> Result<bool, hob_database::Error> {
        let revoked = Tokens::new(&self.database).revoke(id, by).await?;
        lock(&self.cached).retain(|_, entry| entry.token.as_ref() != Some(id));
        self.watched.recheck();
        Ok(revoked)
    }

    /// Writes the times of use to the database. Called once a minute.
    pub(crate) async fn flush_token_uses(&self) -> Result<(), hob_database::Error> {
        let uses = std::mem::take(&mut *lock(&self.uses));
        if uses.is_empty() {
            return Ok(());
        }
        let uses = &uses;
        let write = |tx: Transaction| async move {
            for (id, at) in uses {
                tx.execute(sql("UPDATE web_token SET used_at = $2 WHERE id = $1").bind(id).bind(*at)).await?;
            }
            Ok(())
        };
        self.database.write(write).await
    }

    /// The credential in these headers. It may be invalid.
    pub(super) fn key_of(&self, headers: &HeaderMap) -> Option<CredentialKey> {
        match credential(headers) {
            Some(Credential::Bearer(hash)) => Some(CredentialKey::Bearer(hash)),
            _ if self.is_open() => Some(CredentialKey::Open),
            Some(Credential::Session(hash)) => Some(CredentialKey::Session(hash)),
            None => None,
        }
    }

    /// The caller that a credential currently belongs to. Always queries the database, and removes a caller from the
    /// cache that is no longer valid.
    pub(super) async fn caller_of(&self, key: &CredentialKey) -> Result<Option<Caller>, hob_database::Error> {
        let (hash, found) = match key {
            CredentialKey::Open => return Ok(self.is_open().then(Caller::open)),
            CredentialKey::Bearer(hash) if self.is_admin(hash) => return Ok(Some(Caller::admin())),
            CredentialKey::Bearer(hash) => (hash, self.token(hash).await?),
            CredentialKey::Session(hash) => (hash, self.session(hash).await?),
        };
        if found.is_none() {
            lock(&self.cached).remove(hash);
        }
        Ok(found.map(|found| found.caller))
    }

    pub(super) fn is_admin(&self, hash: &Hash) -> bool {
        lock(&self.admin).as_ref().is_some_and(|admin| admin.is(hash.bytes()))
    }

    /// The caller of a credential, from the cache if possible, otherwise from the database.
    async fn cached_or_load(
        &self,
        hash: Hash,
        load: impl Future<Output = Result<Option<CachedCaller>, hob_database::Error>>,
    ) -> Result<Option<Caller>, hob_database::Error> {
        let entry = lock(&self.cached).get(&hash).cloned();
        let is_usable =
            |entry: &&CachedCaller, within| entry.loaded_at.elapsed() < within && entry.is_valid();
        if let Some(entry) = entry.as_ref().filter(|entry| is_usable(entry, CACHE_FOR)) {
            return Ok(Some(self.record_use(entry)));
        }
        match (load.await, entry) {
            (Ok(Some(found)), _) => {
                let caller = self.record_use(&found);
                let mut cached = lock(&self.cached);
                if cached.len() >= MAX_CACHED {
                    cached.clear();
                }
                cached.insert(hash, found);
                Ok(Some(caller))
            }
            (Ok(None), _) => {
                lock(&self.cached).remove(&hash);
                Ok(None)
            }
            (Err(hob_database::Error::Unavailable { .. }), Some(entry)) if is_usable(&&entry, STALE_FOR) => {
                Ok(Some(self.record_use(&entry)))
            }
            (Err(error), _) => Err(error),
        }
    }

    fn record_use(&self, entry: &CachedCaller) -> Caller {
        if let Some(token) = &entry.token {
            lock(&self.uses).insert(token.clone(), UnixMs::now());
        }
        entry.caller.clone()
    }

    async fn token(&self, hash: &Hash) -> Result<Option<CachedCaller>, hob_database::Error> {
        let found: Option<Token> = self.database.optional(token::by_hash(hash)).await?;
        let good = found.filter(|token| token.is_valid(UnixMs::now()));
        Ok(good.map(|token| CachedCaller {
            caller: Caller::new(&token.name, token.scopes.as_slice()),
            token: Some(token.id),
            until: token.expires_at,
            loaded_at: Instant::now(),
        }))
    }

    async fn session(&self, hash: &Hash) -> Result<Option<CachedCaller>, hob_database::Error> {
        let found: Option<Session> = self.database.optional(session::by_hash(hash)).await?;
        Ok(found.and_then(|session| self.session_caller(session)).filter(CachedCaller::is_valid))
    }

    /// The caller of a session.
    fn session_caller(&self, session: Session) -> Option<CachedCaller> {
        let loaded_at = Instant::now();
        if let Some(admin) = session.admin_hash {
            let same = lock(&self.admin).as_ref().is_some_and(|now| now.is(&admin));
            let until = Some(session.expires_at);
            return same.then(|| CachedCaller { caller: Caller::admin(), token: None, until, loaded_at });
        }
        if let Some(user) = session.user() {
            // The sessions of a provider are valid only while this provider is configured.
            let scopes = self.sign_in.current().oidc.as_ref()?.scopes(&user.subject, &user.groups)?;
            let caller = Caller::user(&user.name, &user.subject, scopes.as_slice());
            return Some(CachedCaller { caller, token: None, until: Some(session.expires_at), loaded_at });
        }
        let (name, scopes) = (session.name?, session.scopes?);
        let until = session.token_expires_at.map_or(session.expires_at, |end| end.min(session.expires_at));
        let entry = CachedCaller {
            caller: Caller::new(&name, scopes.as_slice()),
            token: session.token,
            until: Some(until),
            loaded_at,
        };
        session.revoked_at.is_none().then_some(entry)
    }
}

impl CachedCaller {
    fn is_valid(&self) -> bool {
        self.until.is_none_or(|end| UnixMs::now() < end)
    }
}

impl Caller {
    fn admin() -> Self {
        Self::new("admin", [Scope::Admin])
    }

    /// Any caller of a server without an admin token. Such a server listens on loopback only.
    fn open() -> Self {
        Self::new("this machine", [Scope::Admin])
    }
}

/// A token takes precedence over a session.
fn credential(headers: &HeaderMap) -> Option<Credential> {
    let authorization = headers.get(header::AUTHORIZATION);
    // The key of another API, which that API checks (`ApiKeyCheck`).
    let is_api_key = |value: &&HeaderValue| {
        value.as_bytes().get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"apikey "))
    };
    if let Some(value) = authorization.filter(|value| !is_api_key(value)) {
        let text = value.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
        // An unreadable header counts as an invalid token, not as a missing one.
        let text = text.filter(|text| text.len() <= MAX_CREDENTIAL_BYTES).unwrap_or_default();
        return Some(Credential::Bearer(Hash::of(text.trim())));
    }
    session_cookie(headers).map(Credential::Session)
}

/// The session cookie.
pub(super) const COOKIE: &str = "hob_session";

fn session_cookie(headers: &HeaderMap) -> Option<Hash> {
    cookie_values(headers, COOKIE).find(|text| text.len() <= MAX_CREDENTIAL_BYTES).map(Hash::of)
}

/// The values of all cookies with this name.
pub fn cookie_values<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(move |(found, _)| *found == name).map(|(_, text)| text)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
