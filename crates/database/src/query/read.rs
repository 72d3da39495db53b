//! Reading: from the current database, from a snapshot, or in a transaction.
//!
//! The functions below the trait do the work without knowing the type of the rows, so they are compiled once, in this
//! crate, and not once per type in every crate that reads. The cost of boxing a future is negligible compared with a
//! query.

use futures_util::future::BoxFuture;

use self::sealed::Source;
use crate::address::Dialect;
use crate::query::page::{self, Keyset, Page, PageRequest};
use crate::query::{Query, Statement, Untyped};
use crate::value::row::{FromRow, Row};
use crate::{Database, Error, Snapshot, Transaction};

/// Maximum number of rows that [`Read::all`] returns. Read longer lists by pages.
pub const MAX_ROWS: usize = 10_000;

/// Runs queries. [`Database`] runs each on the current data, a [`Snapshot`] runs all of them on the data of one moment,
/// and a [`Transaction`] also sees its own changes.
pub trait Read: Source + Sized {
    /// The first row. Fails if there is none. For queries that always return a row, such as a count.
    fn one<T: FromRow>(&self, query: Query<T>) -> impl Future<Output = Result<T, Error>> + Send {
        let row = one(self, query.untyped());
        async { T::from_row(&row.await?) }
    }

    /// The first row, if there is one.
    fn optional<T: FromRow>(&self, query: Query<T>) -> impl Future<Output = Result<Option<T>, Error>> + Send {
        let row = optional(self, query.untyped());
        async { row.await?.as_ref().map(T::from_row).transpose() }
    }

    /// All rows. Fails if there are more than [`MAX_ROWS`].
    fn all<T: FromRow>(&self, query: Query<T>) -> impl Future<Output = Result<Vec<T>, Error>> + Send {
        let rows = all(self, query.untyped());
        async { rows.await?.iter().map(T::from_row).collect() }
    }

    /// The rows of one page: see [`Keyset`].
    fn page<T: FromRow>(
        &self,
        query: Query<T>,
        order: &Keyset,
        request: &PageRequest,
    ) -> impl Future<Output = Result<Page<T>, Error>> + Send {
        let page = one_page(self, query.untyped(), *order, request.clone());
        async {
            let Page { rows, next } = page.await?;
            Ok(Page { rows: rows.iter().map(T::from_row).collect::<Result<_, _>>()?, next })
        }
    }
}

impl Read for Database {}
impl Read for Snapshot {}
impl Read for Transaction {}

fn one(source: &dyn Source, query: Untyped) -> BoxFuture<'_, Result<Row, Error>> {
    Box::pin(async move {
        let statement = query.statement(source.dialect())?;
        let sql = statement.sql.clone();
        let rows = source.fetch(statement, 1).await?;
        rows.into_iter().next().ok_or_else(|| Error::NoRow { sql: sql.as_str().to_owned() })
    })
}

fn optional(source: &dyn Source, query: Untyped) -> BoxFuture<'_, Result<Option<Row>, Error>> {
    Box::pin(async move {
        let rows = source.fetch(query.statement(source.dialect())?, 1).await?;
        Ok(rows.into_iter().next())
    })
}

fn all(source: &dyn Source, query: Untyped) -> BoxFuture<'_, Result<Vec<Row>, Error>> {
    Box::pin(async move {
        let statement = query.statement(source.dialect())?;
        let sql = statement.sql.clone();
        let rows = source.fetch(statement, MAX_ROWS + 1).await?;
        if rows.len() > MAX_ROWS {
            return Err(Error::TooManyRows { max: MAX_ROWS, sql: sql.as_str().to_owned() });
        }
        Ok(rows)
    })
}

fn one_page(
    source: &dyn Source,
    query: Untyped,
    order: Keyset,
    request: PageRequest,
) -> BoxFuture<'_, Result<Page<Row>, Error>> {
    Box::pin(async move {
        let statement = order.query(query, &request)?.statement(source.dialect())?;
        let rows = source.fetch(statement, request.size() + 1).await?;
        page::build(rows, &order, &request)
    })
}

pub(crate) mod sealed {
    use super::*;

    /// Runs statements.
    pub trait Source: Sync {
        fn dialect(&self) -> Dialect;

        fn fetch(&self, statement: Statement, max_rows: usize) -> BoxFuture<'_, Result<Vec<Row>, Error>>;
    }
}
