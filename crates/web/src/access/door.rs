//! The door: who is it, and what may they do?
//!
//! What the database said of a token or a session is remembered for a few seconds, so that a busy client costs no query
//! per request; a revocation is heeded at once by the node that made it, and within that time by the others. While the
//! database is away, those who were known a moment ago are still let in: what lives in the store goes on.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use hob_database::{Database, Read as _, Transaction, UnixMs, sql};
use hob_service::config::Secret;

use super::credential::Hash;
use super::session::{self, Key, Session};
use super::token::{self, Token, TokenId, Tokens};
use super::{Caller, Scope, now};

/// How long an answer of the database is believed.
const FRESH: Duration = Duration::from_secs(5);
/// How long it is believed when the database does not answer.
const STALE: Duration = Duration::from_secs(600);
/// As many as are remembered; then all are forgotten, and asked for again.
const MOST_REMEMBERED: usize = 10_000;

/// Longer ones are nobody's.
const LONGEST_CREDENTIAL: usize = 512;

pub(crate) struct Door {
    database: Database,
    /// `None`: open to everybody who can reach it.
    admin: Mutex<Option<Hash>>,
    remembered: Mutex<HashMap<Hash, Remembered>>,
    /// When tokens were used, not written down yet.
    used: Mutex<HashMap<TokenId, UnixMs>>,
}

/// Somebody who was let in.
#[derive(Clone)]
struct Remembered {
    caller: Caller,
    token: Option<TokenId>,
    until: Option<UnixMs>,
    asked: Instant,
}

/// What a request carries to say who sends it.
enum Credential {
    Bearer(Hash),
    Session(Hash),
}

/// Who a token that somebody signs in with belongs to.
pub(super) struct Holder {
    pub(super) caller: Caller,
    pub(super) key: Key,
}

impl Door {
    pub(crate) fn new(database: &Database, admin: Option<&Secret>) -> Self {
        Self {
            database: database.clone(),
            admin: Mutex::new(admin.map(|secret| Hash::of(secret.reveal()))),
            remembered: Mutex::default(),
            used: Mutex::default(),
        }
    }

    /// Replaces the admin token. Sessions that were opened with the last one end. There is no way back to a server
    /// without one: a running process that asks for credentials never stops asking.
    pub(crate) fn replace_admin(&self, admin: &Secret) {
        *lock(&self.admin) = Some(Hash::of(admin.reveal()));
        lock(&self.remembered).clear();
    }

    /// Whether nobody has to say who they are.
    pub(crate) fn is_open(&self) -> bool {
        lock(&self.admin).is_none()
    }

    /// Who sends a request with these headers; `None` for nobody that is known.
    pub(crate) async fn identify(&self, headers: &HeaderMap) -> Result<Option<Caller>, hob_database::Error> {
        match credential(headers) {
            Some(Credential::Bearer(hash)) if self.is_admin(&hash) => Ok(Some(Caller::admin())),
            Some(Credential::Bearer(hash)) => self.remember(hash, self.token(&hash)).await,
            _ if self.is_open() => Ok(Some(Caller::open())),
            Some(Credential::Session(hash)) => self.remember(hash, self.session(&hash)).await,
            None => Ok(None),
        }
    }

    /// Whose token this is.
    pub(super) async fn holder(&self, text: &str) -> Result<Option<Holder>, hob_database::Error> {
        if text.len() > LONGEST_CREDENTIAL {
            return Ok(None);
        }
        let hash = Hash::of(text);
        if self.is_admin(&hash) {
            return Ok(Some(Holder { caller: Caller::admin(), key: Key::Admin(hash) }));
        }
        let found = self.token(&hash).await?;
        Ok(found.and_then(|found| Some(Holder { caller: found.caller, key: Key::Token(found.token?) })))
    }

    pub(super) async fn begin_session(
        &self,
        holder: &Holder,
        lasts: Duration,
    ) -> Result<String, hob_database::Error> {
        session::begin(&self.database, &holder.key, holder.caller.name(), lasts).await
    }

    /// Ends the session that a request carries.
    pub(super) async fn end_session(
        &self,
        headers: &HeaderMap,
        who: &str,
    ) -> Result<(), hob_database::Error> {
        let Some(hash) = session_cookie(headers) else { return Ok(()) };
        lock(&self.remembered).remove(&hash);
        session::end(&self.database, &hash, who).await
    }

    /// Makes a token useless, here at once.
    pub(super) async fn revoke(&self, id: &TokenId, by: &str) -> Result<bool, hob_database::Error> {
        let revoked = Tokens::new(&self.database).revoke(id, by).await?;
        lock(&self.remembered).retain(|_, known| known.token.as_ref() != Some(id));
        Ok(revoked)
    }

    /// Writes down when tokens were used, for as long as they are asked for at most once a minute.
    pub(crate) async fn write_uses(&self) -> Result<(), hob_database::Error> {
        let used = std::mem::take(&mut *lock(&self.used));
        if used.is_empty() {
            return Ok(());
        }
        let used = &used;
        let write = |tx: Transaction| async move {
            for (id, at) in used {
                tx.execute(sql("UPDATE web_token SET used_at = $2 WHERE id = $1").bind(id).bind(*at)).await?;
            }
            Ok(())
        };
        self.database.write(write).await
    }

    fn is_admin(&self, hash: &Hash) -> bool {
        lock(&self.admin).as_ref().is_some_and(|admin| admin.is(hash.bytes()))
    }

    /// What is remembered of a credential, or else what the database says.
    async fn remember(
        &self,
        hash: Hash,
        ask: impl Future<Output = Result<Option<Remembered>, hob_database::Error>>,
    ) -> Result<Option<Caller>, hob_database::Error> {
        let known = lock(&self.remembered).get(&hash).cloned();
        let believed = |known: &&Remembered, within| known.asked.elapsed() < within && known.is_good();
        if let Some(known) = known.as_ref().filter(|known| believed(known, FRESH)) {
            return Ok(Some(self.let_in(known)));
        }
        match (ask.await, known) {
            (Ok(Some(found)), _) => {
                let caller = self.let_in(&found);
                let mut remembered = lock(&self.remembered);
                if remembered.len() >= MOST_REMEMBERED {
                    remembered.clear();
                }
                remembered.insert(hash, found);
                Ok(Some(caller))
            }
            (Ok(None), _) => {
                lock(&self.remembered).remove(&hash);
                Ok(None)
            }
            (Err(hob_database::Error::Unavailable { .. }), Some(known)) if believed(&&known, STALE) => {
                Ok(Some(self.let_in(&known)))
            }
            (Err(error), _) => Err(error),
        }
    }

    fn let_in(&self, known: &Remembered) -> Caller {
        if let Some(token) = &known.token {
            lock(&self.used).insert(token.clone(), now());
        }
        known.caller.clone()
    }

    async fn token(&self, hash: &Hash) -> Result<Option<Remembered>, hob_database::Error> {
        let found: Option<Token> = self.database.optional(token::by_hash(hash)).await?;
        let good = found.filter(|token| token.is_good(now()));
        Ok(good.map(|token| Remembered {
            caller: Caller::new(&token.name, token.scopes.as_slice()),
            token: Some(token.id),
            until: token.expires_at,
            asked: Instant::now(),
        }))
    }

    async fn session(&self, hash: &Hash) -> Result<Option<Remembered>, hob_database::Error> {
        let found: Option<Session> = self.database.optional(session::by_hash(hash)).await?;
        Ok(found.and_then(|session| self.behind(session)).filter(Remembered::is_good))
    }

    /// Whom a session stands for.
    fn behind(&self, session: Session) -> Option<Remembered> {
        let asked = Instant::now();
        if let Some(admin) = session.admin_hash {
            let same = lock(&self.admin).as_ref().is_some_and(|now| now.is(&admin));
            let until = Some(session.expires_at);
            return same.then(|| Remembered { caller: Caller::admin(), token: None, until, asked });
        }
        let (name, scopes) = (session.name?, session.scopes?);
        let until = session.token_expires_at.map_or(session.expires_at, |end| end.min(session.expires_at));
        let known = Remembered {
            caller: Caller::new(&name, scopes.as_slice()),
            token: session.token,
            until: Some(until),
            asked,
        };
        session.revoked_at.is_none().then_some(known)
    }
}

impl Remembered {
    fn is_good(&self) -> bool {
        self.until.is_none_or(|end| now() < end)
    }
}

impl Caller {
    fn admin() -> Self {
        Self::new("admin", [Scope::Admin])
    }

    /// Whoever can reach a server that is open to this machine.
    fn open() -> Self {
        Self::new("this machine", [Scope::Admin])
    }
}

/// A token wins over a session: who sends one means it.
fn credential(headers: &HeaderMap) -> Option<Credential> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let text = value.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
        // What cannot be read is a token all the same, and nobody's.
        let text = text.filter(|text| text.len() <= LONGEST_CREDENTIAL).unwrap_or_default();
        return Some(Credential::Bearer(Hash::of(text.trim())));
    }
    session_cookie(headers).map(Credential::Session)
}

/// The cookie that a session is kept in.
pub(super) const COOKIE: &str = "hob_session";

fn session_cookie(headers: &HeaderMap) -> Option<Hash> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let (_, text) = pairs.find(|(name, text)| *name == COOKIE && text.len() <= LONGEST_CREDENTIAL)?;
    Some(Hash::of(text))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
