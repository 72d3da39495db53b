//! One connection to either database, and the statements that run on it.

pub(crate) mod pools;
mod reachability;

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
use crate::{Error, UnixMs, Value, ValueKind};

/// A connection taken from a pool. Dropping it closes the connection, because a statement may still be running on it;
/// [`Connection::release`] returns it to the pool.
pub(crate) struct Connection {
    pooled: Pooled,
    clean: bool,
    /// The start of a SQLite transaction, which is sent with its first statement: each call wakes SQLite's thread.
    begin: Option<&'static str>,
}

enum Pooled {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(PoolConnection<Postgres>),
}

/// How a transaction is isolated from concurrent ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// As if transactions ran one after the other: everything that this transaction has read is still true when it
    /// commits. A transaction that cannot be serialized is retried.
    Serializable,
    /// Every statement sees all changes that were committed before it, and waits for concurrent changes to the same
    /// rows. Use it for contended rows, for which `Serializable` would retry too often. Such a transaction must decide
    /// within its statements (`UPDATE … WHERE version = $2`), not between them.
    ReadCommitted,
}

/// What a transaction is for.
#[derive(Clone, Copy)]
pub(crate) enum Mode {
    /// Reads the database as it is at the start of the transaction.
    Snapshot,
    Write(Isolation),
}

/// The start of a snapshot; its result is the time.
const BEGIN_POSTGRES_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
     SELECT CAST(extract(epoch FROM now()) * 1000 AS BIGINT)";

/// A write transaction holds locks. If its node freezes between two statements, the server ends it after two seconds, so
/// that the other nodes do not wait longer. The transaction of a node that was only slow is retried.
macro_rules! begin_postgres_write {
    ($isolation:literal) => {
        concat!(
            "BEGIN ISOLATION LEVEL ",
            $isolation,
            " READ WRITE; SET LOCAL idle_in_transaction_session_timeout = 2000;
             SELECT CAST(extract(epoch FROM now()) * 1000 AS BIGINT)"
        )
    };
}

impl Connection {
    pub(crate) fn dialect(&self) -> Dialect {
        match self.pooled {
            Pooled::Sqlite(_) => Dialect::Sqlite,
            Pooled::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Returns the connection to its pool. No statement may be running on it.
    pub(crate) fn release(mut self) {
        self.clean = true;
    }

    /// Begins a transaction and returns its start time. Reading the time does not need an extra round trip.
    pub(crate) async fn begin(&mut self, mode: Mode) -> Result<UnixMs, Error> {
        match &mut self.pooled {
            Pooled::Sqlite(_) => {
                let begin = match mode {
                    Mode::Snapshot => "BEGIN",
                    // Takes the write lock now, because upgrading a read transaction later could fail.
                    Mode::Write(_) => "BEGIN IMMEDIATE",
                };
                self.begin = Some(begin);
                Ok(UnixMs::now())
            }
            Pooled::Postgres(connection) => {
                let begin = match mode {
                    Mode::Snapshot => BEGIN_POSTGRES_READ,
                    Mode::Write(Isolation::Serializable) => begin_postgres_write!("SERIALIZABLE"),
                    Mode::Write(Isolation::ReadCommitted) => begin_postgres_write!("READ COMMITTED"),
                };
                let row = sqlx::raw_sql(begin).fetch_one(&mut **connection).await?;
                Row(Inner::Postgres(row)).at(0)
            }
        }
    }

    /// Whether a transaction was begun, but no statement has run in it.
    pub(crate) fn is_unused(&self) -> bool {
        self.begin.is_some()
    }

    /// Begins a SQLite transaction alone, because SQLite would count rows of the statement before it for `BEGIN`, too.
    async fn begin_now(&mut self) -> Result<(), sqlx::Error> {
        match (&mut self.pooled, self.begin.take()) {
            (Pooled::Sqlite(connection), Some(begin)) => {
                sqlx::raw_sql(begin).execute(&mut **connection).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Runs statements without bound values, one after the other.
    pub(crate) async fn run_script(&mut self, sql: impl SqlSafeStr) -> Result<(), sqlx::Error> {
        self.begin_now().await?;
        let script = sqlx::raw_sql(sql);
        match &mut self.pooled {
            Pooled::Sqlite(connection) => script.execute(&mut **connection).await.map(drop),
            Pooled::Postgres(connection) => script.execute(&mut **connection).await.map(drop),
        }
    }

    /// Runs a statement and returns how many rows it changed.
    pub(crate) async fn execute(&mut self, statement: Statement) -> Result<u64, Error> {
        self.begin_now().await?;
        let Statement { sql, bound, cached } = statement;
        let changed = match &mut self.pooled {
            Pooled::Sqlite(connection) => sqlx::query_with(sql, sqlite_arguments(bound)?)
                .persistent(cached)
                .execute(&mut **connection)
                .await?
                .rows_affected(),
            Pooled::Postgres(connection) => sqlx::query_with(sql, postgres_arguments(bound)?)
                .persistent(cached)
                .execute(&mut **connection)
                .await?
                .rows_affected(),
        };
        Ok(changed)
    }

    /// Runs a query and streams its rows.
    pub(crate) fn stream(&mut self, statement: Statement) -> BoxStream<'_, Result<Row, Error>> {
        let statement = match self.begin.take() {
            Some(begin) => statement.preceded_by(begin),
            None => statement,
        };
        let Statement { sql, bound, cached } = statement;
        let refused = |error: Error| futures_util::stream::once(future::ready(Err(error))).boxed();
        match &mut self.pooled {
            Pooled::Sqlite(connection) => match sqlite_arguments(bound) {
                Ok(arguments) => sqlx::query_with(sql, arguments)
                    .persistent(cached)
                    .fetch(&mut **connection)
                    .map(|row| Ok(Row(Inner::Sqlite(row?))))
                    .boxed(),
                Err(error) => refused(error),
            },
            Pooled::Postgres(connection) => match postgres_arguments(bound) {
                Ok(arguments) => sqlx::query_with(sql, arguments)
                    .persistent(cached)
                    .fetch(&mut **connection)
                    .map(|row| Ok(Row(Inner::Postgres(row?))))
                    .boxed(),
                Err(error) => refused(error),
            },
        }
    }

    /// Runs a query and returns at most `max_rows` rows.
    pub(crate) async fn fetch(&mut self, statement: Statement, max_rows: usize) -> Result<Vec<Row>, Error> {
        self.stream(statement).take(max_rows).try_collect().await
    }
}

impl From<PoolConnection<Sqlite>> for Connection {
    fn from(connection: PoolConnection<Sqlite>) -> Self {
        Self { pooled: Pooled::Sqlite(connection), clean: false, begin: None }
    }
}

impl From<PoolConnection<Postgres>> for Connection {
    fn from(connection: PoolConnection<Postgres>) -> Self {
        Self { pooled: Pooled::Postgres(connection), clean: false, begin: None }
    }
}

impl Drop for Connection {
    /// If the connection were returned, the pool could wait forever for a server that does not respond.
    fn drop(&mut self) {
        if !self.clean {
            match &mut self.pooled {
                Pooled::Sqlite(connection) => connection.close_on_drop(),
                Pooled::Postgres(connection) => connection.close_on_drop(),
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
            Some(Value::Bool(flag)) => Arguments::add(&mut arguments, flag),
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
            (ValueKind::Int, None) => arguments.add(None::<i64>),
            (ValueKind::Real, None) => arguments.add(None::<f64>),
            (ValueKind::Bool, None) => arguments.add(None::<bool>),
            (ValueKind::Text, None) => arguments.add(None::<String>),
            (ValueKind::Bytes, None) => arguments.add(None::<Vec<u8>>),
            (_, Some(Value::Int(n))) => arguments.add(n),
            (_, Some(Value::Real(x))) => arguments.add(x),
            (_, Some(Value::Bool(flag))) => arguments.add(flag),
            (_, Some(Value::Text(text))) => arguments.add(text),
            (_, Some(Value::Bytes(bytes))) => arguments.add(bytes),
        };
        added.map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}
