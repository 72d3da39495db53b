//! Sessions of the console: created with a token, stored as a hash, with an expiry.

use std::time::Duration;

use hob_database::{Database, Error, Query, UnixMs, from_row, sql};

use super::audit;
use super::credential::{self, Hash};
use super::token::{Scopes, TokenId};

/// The credential that a session was created with.
#[derive(Clone, Debug)]
pub(super) enum SessionCredential {
    /// The admin token at that time.
    Admin(Hash),
    Token(TokenId),
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
}

from_row!(Session { expires_at, admin_hash, token, name, scopes, token_expires_at, revoked_at });

/// Creates a session and returns the value of its cookie.
pub(super) async fn begin(
    database: &Database,
    credential_used: &SessionCredential,
    who: &str,
    lasts: Duration,
) -> Result<String, Error> {
    let text = credential::random();
    let hash = &Hash::of(&text);
    let (token, admin) = match credential_used {
        SessionCredential::Admin(hash) => (None, Some(hash.bytes())),
        SessionCredential::Token(id) => (Some(id), None),
    };
    database
        .write(|tx| async move {
            let insert = sql("INSERT INTO web_session (hash, token, admin_hash, created_at, expires_at)
                              VALUES ($1, $2, $3, $4, $5)");
            let insert = insert.bind(hash.bytes()).bind(token).bind(admin).bind(tx.now());
            tx.execute(insert.bind(tx.now().plus(lasts))).await?;
            audit::write(&tx, who, "session.begin", "").await
        })
        .await?;
    Ok(text)
}

/// Ends a session, if there is one.
pub(super) async fn end(database: &Database, hash: &Hash, who: &str) -> Result<(), Error> {
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
                            t.expires_at AS token_expires_at, t.revoked_at
                     FROM web_session s LEFT JOIN web_token t ON t.id = s.token WHERE s.hash = $1");
    query.bind(hash.bytes())
}
