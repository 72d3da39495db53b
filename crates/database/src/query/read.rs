//! Reading: from the current database, from a snapshot, or in a transaction.

use crate::address::Dialect;
use crate::query::page::{self, Keyset, Page, PageRequest};
use crate::query::{Query, Statement};
use crate::value::row::{FromRow, Row};
use crate::{Database, Error, Snapshot, Transaction};

/// Maximum number of rows that [`Read::all`] returns. Read longer lists by pages.
pub const MAX_ROWS: usize = 10_000;

/// Runs queries. [`Database`] runs each on the current data, a [`Snapshot`] runs all of them on the data of one moment,
/// and a [`Transaction`] also sees its own changes.
pub trait Read: sealed::Source + Sync {
    /// The first row. Fails if there is none: for queries such as a count.
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

    /// All rows. Fails if there are more than [`MAX_ROWS`].
    fn all<T: FromRow>(&self, query: Query<T>) -> impl Future<Output = Result<Vec<T>, Error>> + Send {
        async move {
            let statement = query.statement(self.dialect())?;
            let sql = statement.sql.clone();
            let rows = self.fetch(statement, MAX_ROWS + 1).await?;
            if rows.len() > MAX_ROWS {
                return Err(Error::TooManyRows { max: MAX_ROWS, sql: sql.as_str().to_owned() });
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
            page::build(&rows, order, request)
        }
    }
}

impl Read for Database {}
impl Read for Snapshot {}
impl Read for Transaction {}

pub(crate) mod sealed {
    use super::*;

    /// Runs statements.
    pub trait Source {
        fn dialect(&self) -> Dialect;

        fn fetch(
            &self,
            statement: Statement,
            max_rows: usize,
        ) -> impl Future<Output = Result<Vec<Row>, Error>> + Send;
    }
}
