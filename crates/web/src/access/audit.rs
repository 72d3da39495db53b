//! The audit trail: who did what, for as long as the configuration says.

use hob_database::{
    Database, Error, Keyset, Kind, Page, PageRequest, Read as _, Transaction, UnixMs, from_row, sql,
};

use crate::access::random_id;

/// What somebody did.
#[derive(Clone, Debug)]
pub struct Deed {
    pub id: String,
    pub at: UnixMs,
    /// A token's name, `admin`, or where nobody has to sign in, `this machine`.
    pub who: String,
    /// Such as `token.create`.
    pub what: String,
    pub detail: String,
}

/// The audit trail in the database. Clones are handles to the same.
#[derive(Clone, Debug)]
pub struct Audit {
    database: Database,
}

from_row!(Deed { id, at, who, what, detail });

const NEWEST_FIRST: Keyset = Keyset::descending(&[("at", Kind::Int), ("id", Kind::Text)]);

const LONGEST_NAME: usize = 128;
const LONGEST_DETAIL: usize = 1_024;

impl Audit {
    #[must_use]
    pub fn new(database: &Database) -> Self {
        Self { database: database.clone() }
    }

    /// Writes down that somebody did something: `("ada", "uptime.monitor.delete", "m1")`. Never a secret.
    pub async fn record(&self, who: &str, what: &str, detail: &str) -> Result<(), Error> {
        self.database.write(|tx| async move { write(&tx, who, what, detail).await }).await
    }

    /// What was done, newest first.
    pub async fn page(&self, request: &PageRequest) -> Result<Page<Deed>, Error> {
        let all = sql("SELECT id, at, who, what, detail FROM web_audit WHERE TRUE");
        self.database.page(all, &NEWEST_FIRST, request).await
    }
}

/// Writes it down in the transaction that does it: neither happens without the other.
pub async fn write(tx: &Transaction, who: &str, what: &str, detail: &str) -> Result<(), Error> {
    let insert = sql("INSERT INTO web_audit (id, at, who, what, detail) VALUES ($1, $2, $3, $4, $5)");
    let insert = insert.bind(random_id()).bind(tx.now()).bind(cut(who, LONGEST_NAME));
    tx.execute(insert.bind(cut(what, LONGEST_NAME)).bind(cut(detail, LONGEST_DETAIL))).await.map(drop)
}

/// As much of a text as there is room for, without what no database stores.
fn cut(text: &str, longest: usize) -> String {
    let clean = text.replace('\0', "");
    if clean.len() <= longest {
        return clean;
    }
    let end = (0..=longest).rev().find(|end| clean.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &clean[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_between_letters() {
        assert_eq!(cut("gnome", 5), "gnome");
        assert_eq!(cut("gnömes", 3), "gn…");
        assert_eq!(cut("a\0b", 5), "ab");
    }
}
