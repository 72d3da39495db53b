//! Sessions of the console: a session is created with a token or by a user of the OpenID Connect provider, is stored as
//! a hash, and expires.

use std::time::Duration;

use hob_database::{Database, Error, Query, UnixMs, from_row, sql};

use super::audit::{self, Actor};
use super::credential::{self, Hash};
use super::oidc::User;
use super::token::{Scopes, TokenId};

/// The credential that a session was created with.
#[derive(Clone, Debug)]
pub(super) enum SessionCredential {
    /// The admin token at that time.
    Admin(Hash),
    Token(TokenId),
    User(User),
}

/// A session with its token.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) expires_at: UnixMs,
    pub(super) admin_hash: Option<Vec<u8>>,
    pub(super) token: Option<TokenId>,
    pub(super) name: Option<String>,
    pub(super) scopes: Option<Scopes>,
    pub(super) token_expires_at: Option<UnixMs>,
    pub(super) revoked_at: Option<UnixMs>,
    user_subject: Option<String>,
    user_name: Option<String>,
    /// A list in JSON.
    user_groups: Option<String>,
}

from_row!(Session {
    expires_at,
    admin_hash,
    token,
    name,
    scopes,
    token_expires_at,
    revoked_at,
    user_subject,
    user_name,
    user_groups
});

impl Session {
    /// The user of the session, unless it was created with a token.
    pub(super) fn user(&self) -> Option<User> {
        let groups = serde_json::from_str(self.user_groups.as_deref()?).ok()?;
        Some(User { subject: self.user_subject.clone()?, name: self.user_name.clone()?, groups })
    }
}

/// Creates a session and returns the value of its cookie.
pub(super) async fn begin(
    database: &Database,
    credential_used: &SessionCredential,
    who: Actor<'_>,
    lasts: Duration,
) -> Result<String, Error> {
    let text = credential::random();
    let hash = &Hash::of(&text);
    let (token, admin, user) = match credential_used {
        SessionCredential::Admin(hash) => (None, Some(hash.bytes()), None),
        SessionCredential::Token(id) => (Some(id), None, None),
        SessionCredential::User(user) => (None, None, Some(user)),
    };
    let groups = user.map(|user| serde_json::json!(user.groups).to_string());
    let groups = groups.as_deref();
    database
        .write(|tx| async move {
            let insert =
                sql("INSERT INTO web_session (hash, token, admin_hash, created_at, expires_at, user_subject,
                                                       user_name, user_groups)
                              VALUES ($1, $2, $3, $4, $5, $6, $7, $8)");
            let insert = insert.bind(hash.bytes()).bind(token).bind(admin).bind(tx.now());
            let insert = insert.bind(tx.now().plus(lasts)).bind(user.map(|user| user.subject.as_str()));
            tx.execute(insert.bind(user.map(|user| user.name.as_str())).bind(groups)).await?;
            audit::write(&tx, who, "session.begin", "").await
        })
        .await?;
    Ok(text)
}

/// Ends a session, if there is one.
pub(super) async fn end(database: &Database, hash: &Hash, who: Actor<'_>) -> Result<(), Error> {
    database
        .write(|tx| async move {
            if tx.execute(sql("DELETE FROM web_session WHERE hash = $1").bind(hash.bytes())).await? > 0 {
                audit::write(&tx, who, "session.end", "").await?;
            }
            Ok(())
        })
        .await
}

pub(super) fn by_hash(hash: &Hash) -> Query<Session> {
    let query = sql("SELECT s.expires_at, s.admin_hash, s.token, t.name, t.scopes,
                            t.expires_at AS token_expires_at, t.revoked_at,
                            s.user_subject, s.user_name, s.user_groups
                     FROM web_session s LEFT JOIN web_token t ON t.id = s.token WHERE s.hash = $1");
    query.bind(hash.bytes())
}
