//! One connection to either database, and the statements that run on it.

pub(crate) mod pools;

use std::future;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgArguments;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments, Postgres, SqlSafeStr, Sqlite};

use crate::address::Dialect;
use crate::query::{Bound, Statement};
use crate::value::row::{Inner, Row};
use crate::{Error, Kind, UnixMs, Value};

/// A connection on loan from a pool. Unless it is given back with [`Connection::release`], nobody knows what
/// is still under way on it, and it is closed.
pub(crate) struct Connection {
    lent: Lent,
    clean: bool,
}

enum Lent {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(PoolConnection<Postgres>),
}

/// How a transaction treats others that run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// As if it ran alone: what it has read is still true when it commits. When that cannot be had, it is
    /// run again.
    Serializable,
    /// Every statement sees what was committed before it, and waits for others that change the same rows.
    /// For rows that everybody changes, where `Serializable` would be run again and again: such a
    /// transaction decides within its statements (`UPDATE … WHERE version = $2`), not between them.
    Committed,
}

/// What a transaction is for.
#[derive(Clone, Copy)]
pub(crate) enum Mode {
    /// To see the database as they are now, until its end.
    Snapshot,
    Write(Isolation),
}

macro_rules! begin_postgres {
    ($how:literal) => {
        concat!("BEGIN ISOLATION LEVEL ", $how, "; SELECT CAST(extract(epoch FROM now()) * 1000 AS BIGINT)")
    };
}

impl Connection {
    pub(crate) fn dialect(&self) -> Dialect {
        match self.lent {
            Lent::Sqlite(_) => Dialect::Sqlite,
            Lent::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Gives a connection back on which nothing is under way.
    pub(crate) fn release(mut self) {
        self.clean = true;
    }

    /// Begins a transaction, and answers with its time, which comes along at no cost of its own.
    pub(crate) async fn begin(&mut self, mode: Mode) -> Result<UnixMs, Error> {
        match &mut self.lent {
            Lent::Sqlite(connection) => {
                let begin = match mode {
                    Mode::Snapshot => "BEGIN",
                    // A write lock taken at once cannot fail later, when the transaction has read something.
                    Mode::Write(_) => "BEGIN IMMEDIATE",
                };
                sqlx::raw_sql(begin).execute(&mut **connection).await?;
                Ok(UnixMs::here())
            }
            Lent::Postgres(connection) => {
                let begin = match mode {
                    Mode::Snapshot => begin_postgres!("REPEATABLE READ READ ONLY"),
                    Mode::Write(Isolation::Serializable) => begin_postgres!("SERIALIZABLE READ WRITE"),
                    Mode::Write(Isolation::Committed) => begin_postgres!("READ COMMITTED READ WRITE"),
                };
                let row = sqlx::raw_sql(begin).fetch_one(&mut **connection).await?;
                Row(Inner::Postgres(row)).at(0)
            }
        }
    }

    /// Runs statements without values, one after the other.
    pub(crate) async fn run_script(&mut self, sql: impl SqlSafeStr) -> Result<(), sqlx::Error> {
        let script = sqlx::raw_sql(sql);
        match &mut self.lent {
            Lent::Sqlite(connection) => script.execute(&mut **connection).await.map(drop),
            Lent::Postgres(connection) => script.execute(&mut **connection).await.map(drop),
        }
    }

    /// Runs a statement, and answers with how many rows it changed.
    pub(crate) async fn execute(&mut self, statement: Statement) -> Result<u64, Error> {
        let Statement { sql, bound, lasting } = statement;
        let changed = match &mut self.lent {
            Lent::Sqlite(connection) => sqlx::query_with(sql, sqlite_arguments(bound)?)
                .persistent(lasting)
                .execute(&mut **connection)
                .await?
                .rows_affected(),
            Lent::Postgres(connection) => sqlx::query_with(sql, postgres_arguments(bound)?)
                .persistent(lasting)
                .execute(&mut **connection)
                .await?
                .rows_affected(),
        };
        Ok(changed)
    }

    /// Runs a query, and answers with its rows as they come.
    pub(crate) fn stream(&mut self, statement: Statement) -> BoxStream<'_, Result<Row, Error>> {
        let Statement { sql, bound, lasting } = statement;
        let refused = |error: Error| futures_util::stream::once(future::ready(Err(error))).boxed();
        match &mut self.lent {
            Lent::Sqlite(connection) => match sqlite_arguments(bound) {
                Ok(arguments) => sqlx::query_with(sql, arguments)
                    .persistent(lasting)
                    .fetch(&mut **connection)
                    .map(|row| Ok(Row(Inner::Sqlite(row?))))
                    .boxed(),
                Err(error) => refused(error),
            },
            Lent::Postgres(connection) => match postgres_arguments(bound) {
                Ok(arguments) => sqlx::query_with(sql, arguments)
                    .persistent(lasting)
                    .fetch(&mut **connection)
                    .map(|row| Ok(Row(Inner::Postgres(row?))))
                    .boxed(),
                Err(error) => refused(error),
            },
        }
    }

    /// Runs a query, and answers with its first rows.
    pub(crate) async fn fetch(&mut self, statement: Statement, most: usize) -> Result<Vec<Row>, Error> {
        self.stream(statement).take(most).try_collect().await
    }
}

impl From<PoolConnection<Sqlite>> for Connection {
    fn from(connection: PoolConnection<Sqlite>) -> Self {
        Self { lent: Lent::Sqlite(connection), clean: false }
    }
}

impl From<PoolConnection<Postgres>> for Connection {
    fn from(connection: PoolConnection<Postgres>) -> Self {
        Self { lent: Lent::Postgres(connection), clean: false }
    }
}

impl Drop for Connection {
    /// The pool would wait without limit for a server that does not answer.
    fn drop(&mut self) {
        if !self.clean {
            match &mut self.lent {
                Lent::Sqlite(connection) => connection.close_on_drop(),
                Lent::Postgres(connection) => connection.close_on_drop(),
            }
        }
    }
}

fn sqlite_arguments(bound: Vec<Bound>) -> Result<SqliteArguments, Error> {
    let mut arguments = SqliteArguments::default();
    for (_, value) in bound {
        let added = match value {
            None => Arguments::add(&mut arguments, None::<i64>),
            Some(Value::Int(n)) => Arguments::add(&mut arguments, n),
            Some(Value::Real(x)) => Arguments::add(&mut arguments, x),
            Some(Value::Bool(truth)) => Arguments::add(&mut arguments, truth),
            Some(Value::Text(text)) => Arguments::add(&mut arguments, text),
            Some(Value::Bytes(bytes)) => Arguments::add(&mut arguments, bytes),
        };
        added.map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

fn postgres_arguments(bound: Vec<Bound>) -> Result<PgArguments, Error> {
    let mut arguments = PgArguments::default();
    for bound in bound {
        let added = match bound {
            (Kind::Int, None) => arguments.add(None::<i64>),
            (Kind::Real, None) => arguments.add(None::<f64>),
            (Kind::Bool, None) => arguments.add(None::<bool>),
            (Kind::Text, None) => arguments.add(None::<String>),
            (Kind::Bytes, None) => arguments.add(None::<Vec<u8>>),
            (_, Some(Value::Int(n))) => arguments.add(n),
            (_, Some(Value::Real(x))) => arguments.add(x),
            (_, Some(Value::Bool(truth))) => arguments.add(truth),
            (_, Some(Value::Text(text))) => arguments.add(text),
            (_, Some(Value::Bytes(bytes))) => arguments.add(bytes),
        };
        added.map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}
