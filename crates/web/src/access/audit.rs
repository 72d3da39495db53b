//! The audit log: who did what. `[server] keep_audit_log` sets how long entries are kept.

use std::sync::atomic::{AtomicU64, Ordering};

use hob_database::{
    Database, Error, Keyset, Page, PageRequest, Read as _, Transaction, UnixMs, ValueKind, from_row, sql,
};
use hob_units::unix_time;

use crate::Caller;
use crate::access::random_id;

/// An entry of the audit log.
#[derive(Clone, Debug)]
pub struct AuditEntry {
    pub id: String,
    pub at: UnixMs,
    /// The name of a user or of a token, `admin`, or `this machine` on a server without an admin token.
    pub who: String,
    /// For a user: the issuer and the subject, which stay the same when the name changes.
    pub subject: Option<String>,
    /// Such as `token.create`.
    pub what: String,
    pub detail: String,
}

/// Who does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor<'a> {
    /// The name for people.
    pub name: &'a str,
    /// For a user: the issuer and the subject.
    pub subject: Option<&'a str>,
}

/// The audit log in the database. Clones share the same handle.
#[derive(Clone, Debug)]
pub struct Audit {
    database: Database,
}

from_row!(AuditEntry { id, at, who, subject, what, detail });

const NEWEST_FIRST: Keyset = Keyset::descending(&[("at", ValueKind::Int), ("id", ValueKind::Text)]);

const MAX_NAME_BYTES: usize = 128;
const MAX_SUBJECT_BYTES: usize = 2_048;
const MAX_DETAIL_BYTES: usize = 1_024;

impl Audit {
    #[must_use]
    pub fn new(database: &Database) -> Self {
        Self { database: database.clone() }
    }

    /// Records an action: `("ada", "uptime.monitor.delete", "m1")`. Must not contain secrets.
    pub async fn record(&self, who: impl Into<Actor<'_>>, what: &str, detail: &str) -> Result<(), Error> {
        let who = who.into();
        self.database.write(|tx| async move { write(&tx, who, what, detail).await }).await
    }

    /// Entries, newest first: all, or those of one actor, by name or subject.
    pub async fn page(&self, actor: Option<&str>, request: &PageRequest) -> Result<Page<AuditEntry>, Error> {
        let entries = match actor {
            None => sql("SELECT id, at, who, subject, what, detail FROM web_audit WHERE TRUE"),
            Some(actor) => {
                let of_actor = sql("SELECT id, at, who, subject, what, detail FROM web_audit
                                    WHERE (who = $1 OR subject = $1)");
                of_actor.bind(actor)
            }
        };
        self.database.page(entries, &NEWEST_FIRST, request).await
    }
}

/// Records an action in the transaction that performs it, so that both are committed together.
pub async fn write(tx: &Transaction, who: Actor<'_>, what: &str, detail: &str) -> Result<(), Error> {
    let insert =
        sql("INSERT INTO web_audit (id, at, who, subject, what, detail) VALUES ($1, $2, $3, $4, $5, $6)");
    let insert = insert.bind(entry_id()).bind(tx.now()).bind(truncate(who.name, MAX_NAME_BYTES));
    let insert = insert.bind(who.subject.map(|subject| truncate(subject, MAX_SUBJECT_BYTES)));
    tx.execute(insert.bind(truncate(what, MAX_NAME_BYTES)).bind(truncate(detail, MAX_DETAIL_BYTES)))
        .await
        .map(drop)
}

/// Entries of the same millisecond are listed by id: in the order in which this node has written them.
fn entry_id() -> String {
    static LAST_US: AtomicU64 = AtomicU64::new(0);
    let now_us = u64::try_from(unix_time().as_micros()).unwrap_or(u64::MAX);
    let next = |last: u64| now_us.max(last.saturating_add(1));
    let last = LAST_US.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
    format!("{:016x}{}", next(last.unwrap_or_default()), random_id())
}

/// Not a user.
impl<'a> From<&'a str> for Actor<'a> {
    fn from(name: &'a str) -> Self {
        Self { name, subject: None }
    }
}

impl<'a> From<&'a Caller> for Actor<'a> {
    fn from(caller: &'a Caller) -> Self {
        Self { name: caller.name(), subject: caller.subject() }
    }
}

/// The text without NUL characters, cut to a length.
fn truncate(text: &str, max_bytes: usize) -> String {
    let clean = text.replace('\0', "");
    if clean.len() <= max_bytes {
        return clean;
    }
    let end = (0..=max_bytes).rev().find(|end| clean.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &clean[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_at_a_character_boundary() {
        assert_eq!(truncate("gnome", 5), "gnome");
        assert_eq!(truncate("gnömes", 3), "gn…");
        assert_eq!(truncate("a\0b", 5), "ab");
    }
}
