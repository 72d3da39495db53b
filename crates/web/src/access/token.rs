//! API tokens. The secret of a token is shown once, when it is created.

use std::fmt;
use std::str::FromStr;

use hob_database::{
    Database, Error, Keyset, Page, PageRequest, Query, Read as _, Transaction, UnixMs, ValueKind, column,
    from_row, sql,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::audit::{self, Actor};
use super::credential::{self, Hash};
use super::{BadScope, Scope};

/// The public id of a token.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub struct TokenId(String);

/// A token, without its secret.
#[derive(Clone, Debug)]
pub struct Token {
    pub id: TokenId,
    pub name: String,
    pub scopes: Scopes,
    pub created_at: UnixMs,
    pub created_by: String,
    pub expires_at: Option<UnixMs>,
    /// Exact to the minute.
    pub used_at: Option<UnixMs>,
    pub revoked_at: Option<UnixMs>,
}

/// The scopes of a token, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scopes(Vec<Scope>);

/// A token to create.
#[derive(Clone, Debug)]
pub struct NewToken {
    pub name: String,
    pub scopes: Scopes,
    pub expires_at: Option<UnixMs>,
}

/// The result of creating a token.
#[derive(Clone, Debug)]
pub enum TokenCreation {
    /// `text` is the secret that the caller sends. It is not stored.
    Created { token: Token, text: String },
    /// The limit [`Tokens::MAX`] is reached.
    TooMany,
}

/// The tokens in the database. Clones share the same handle.
#[derive(Clone, Debug)]
pub struct Tokens {
    database: Database,
}

column!(TokenId(String));
column!(Scopes as text);
from_row!(Token { id, name, scopes, created_at, created_by, expires_at, used_at, revoked_at });

const NEWEST_FIRST: Keyset = Keyset::descending(&[("created_at", ValueKind::Int), ("id", ValueKind::Text)]);

impl Tokens {
    /// The prefix of every token, so that secret scanners recognise a leaked one.
    pub const PREFIX: &str = "hob_";
    /// The maximum number of tokens that are not revoked.
    pub const MAX: u64 = 1_000;

    #[must_use]
    pub fn new(database: &Database) -> Self {
        Self { database: database.clone() }
    }

    /// Creates a token. `by` is the actor in the audit log.
    pub async fn create(&self, new: &NewToken, by: impl Into<Actor<'_>>) -> Result<TokenCreation, Error> {
        let by = by.into();
        let text = format!("{}{}", Self::PREFIX, credential::random());
        let id = TokenId(credential::random_id());
        let (hash, id) = (&Hash::of(&text), &id);
        let token = self
            .database
            .write(|tx| async move {
                let count: Query<(u64,)> = sql("SELECT count(*) FROM web_token WHERE revoked_at IS NULL");
                if tx.one(count).await?.0 >= Self::MAX {
                    return Ok(None);
                }
                let insert =
                    sql("INSERT INTO web_token (id, name, hash, scopes, created_at, created_by, expires_at)
                                  VALUES ($1, $2, $3, $4, $5, $6, $7)");
                let insert = insert.bind(id).bind(&new.name).bind(hash.bytes()).bind(new.scopes.clone());
                tx.execute(insert.bind(tx.now()).bind(by.name).bind(new.expires_at)).await?;
                let detail = format!("{} {}: {}", id.0, new.name, new.scopes);
                audit::write(&tx, by, "token.create", &detail).await?;
                tx.optional(by_id(id)).await
            })
            .await?;
        Ok(token.map_or(TokenCreation::TooMany, |token| TokenCreation::Created { token, text }))
    }

    /// Tokens, newest first.
    pub async fn page(&self, request: &PageRequest) -> Result<Page<Token>, Error> {
        let all = sql("SELECT id, name, scopes, created_at, created_by, expires_at, used_at, revoked_at
                       FROM web_token WHERE TRUE");
        self.database.page(all, &NEWEST_FIRST, request).await
    }

    /// Revokes a token and ends its sessions. Returns false if there is no such token or it is already revoked.
    pub async fn revoke(&self, id: &TokenId, by: impl Into<Actor<'_>>) -> Result<bool, Error> {
        let by = by.into();
        self.database
            .write(|tx| async move {
                let revoke = sql("UPDATE web_token SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL");
                if tx.execute(revoke.bind(id).bind(tx.now())).await? == 0 {
                    return Ok(false);
                }
                end_sessions(&tx, id).await?;
                audit::write(&tx, by, "token.revoke", &id.0).await?;
                Ok(true)
            })
            .await
    }
}

async fn end_sessions(tx: &Transaction, id: &TokenId) -> Result<(), Error> {
    tx.execute(sql("DELETE FROM web_session WHERE token = $1").bind(id)).await.map(drop)
}

fn by_id(id: &TokenId) -> Query<Token> {
    let query = sql("SELECT id, name, scopes, created_at, created_by, expires_at, used_at, revoked_at
                     FROM web_token WHERE id = $1");
    query.bind(id)
}

/// The token with this hash, valid or not.
pub(super) fn by_hash(hash: &Hash) -> Query<Token> {
    let query = sql("SELECT id, name, scopes, created_at, created_by, expires_at, used_at, revoked_at
                     FROM web_token WHERE hash = $1");
    query.bind(hash.bytes())
}

impl Token {
    /// Whether the token is valid at this time.
    #[must_use]
    pub fn is_valid(&self, now: UnixMs) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

impl TokenId {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for TokenId {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Scopes {
    /// The maximum number of scopes of a token.
    pub const MAX: usize = 32;

    /// `None` if there are none or too many.
    #[must_use]
    pub fn new(mut scopes: Vec<Scope>) -> Option<Self> {
        scopes.sort();
        scopes.dedup();
        (1..=Self::MAX).contains(&scopes.len()).then_some(Self(scopes))
    }

    #[must_use]
    pub fn as_slice(&self) -> &[Scope] {
        &self.0
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        for scope in &self.0 {
            write!(f, "{gap}{scope}")?;
            gap = " ";
        }
        Ok(())
    }
}

impl FromStr for Scopes {
    type Err = BadScope;

    fn from_str(text: &str) -> Result<Self, BadScope> {
        let scopes: Result<Vec<Scope>, BadScope> = text.split(' ').map(str::parse).collect();
        Self::new(scopes?).ok_or(BadScope)
    }
}
