//! How anything is read: from the database as they are now, from a snapshot, or within a transaction.

use crate::address::Dialect;
use crate::query::page::{self, Keyset, Page, PageRequest};
use crate::query::{Query, Statement};
use crate::value::row::{FromRow, Row};
use crate::{Database, Error, Snapshot, Transaction};

/// The most rows that [`Read::all`] answers with. What may be more is read by pages.
pub const MOST_ROWS: usize = 10_000;

/// Answers queries. [`Database`] answers each with the database as they are at that moment, a [`Snapshot`] all
/// of them as of one moment, a [`Transaction`] with its own changes among them.
pub trait Read: sealed::Source + Sync {
    /// The one row that there always is, such as a count.
    fn one<T: FromRow>(&self, query: Query<T>) -> impl Future<Output = Result<T, Error>> + Send {
        async move {
            let statement = query.statement(self.dialect())?;
            let sql = statement.sql.clone();
            let rows = self.fetch(statement, 1).await?;
            let none = || Error::NoRow { sql: sql.as_str().to_owned() };
            T::from_row(rows.first().ok_or_else(none)?)
        }
    }

    /// The first row, if there is one.
    fn optional<T: FromRow>(&self, query: Query<T>) -> impl Future<Output = Result<Option<T>, Error>> + Send {
        async move {
            let rows = self.fetch(query.statement(self.dialect())?, 1).await?;
            rows.first().map(T::from_row).transpose()
        }
    }

    /// All rows, [`MOST_ROWS`] at most.
    fn all<T: FromRow>(&self, query: Query<T>) -> impl Future<Output = Result<Vec<T>, Error>> + Send {
        async move {
            let statement = query.statement(self.dialect())?;
            let sql = statement.sql.clone();
            let rows = self.fetch(statement, MOST_ROWS + 1).await?;
            if rows.len() > MOST_ROWS {
                return Err(Error::TooManyRows { most: MOST_ROWS, sql: sql.as_str().to_owned() });
            }
            rows.iter().map(T::from_row).collect()
        }
    }

    /// The rows of one page: see [`Keyset`].
    fn page<T: FromRow>(
        &self,
        query: Query<T>,
        order: &Keyset,
        request: &PageRequest,
    ) -> impl Future<Output = Result<Page<T>, Error>> + Send {
        async move {
            let statement = order.query(query, request)?.statement(self.dialect())?;
            let rows = self.fetch(statement, request.size() + 1).await?;
            page::fill(&rows, order, request)
        }
    }
}

impl Read for Database {}
impl Read for Snapshot {}
impl Read for Transaction {}

pub(crate) mod sealed {
    use super::*;

    /// What runs a statement.
    pub trait Source {
        fn dialect(&self) -> Dialect;

        fn fetch(
            &self,
            statement: Statement,
            most: usize,
        ) -> impl Future<Output = Result<Vec<Row>, Error>> + Send;
    }
}
