//! Connection pools: one writer and several readers for SQLite, one pool for PostgreSQL.

use std::path::Path;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{PgPool, SqlitePool};

use crate::address::{Address, Dialect, Location};
use crate::connection::reachability::Reachability;
use crate::connection::{Connection, Mode};
use crate::{Error, Options, private_file};

/// Number of prepared statements that a connection caches: more than all services together have.
const MAX_CACHED_STATEMENTS: usize = 500;

#[derive(Clone)]
pub(crate) enum Pools {
    Sqlite { writer: SqlitePool, readers: SqlitePool },
    Postgres { pool: PgPool, server: Reachability },
}

impl Pools {
    /// Does not connect yet. Creates the file of a SQLite database.
    pub(crate) fn new(address: &Address, options: &Options) -> Result<Self, Error> {
        match address.location() {
            Location::File(path) => Self::sqlite(path, options),
            Location::Server(server) => Ok(Self::postgres(&server.options, options)),
        }
    }

    fn sqlite(path: &Path, options: &Options) -> Result<Self, Error> {
        private_file::create_sqlite(path)
            .map_err(|source| Error::File { what: format!("cannot create {}", path.display()), source })?;
        private_file::restrict_sqlite(path);
        let connect = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .statement_cache_capacity(MAX_CACHED_STATEMENTS)
            // Only another process can hold the lock. The wait is half of the limit, so that SQLite reports the lock
            // before our own timeout.
            .busy_timeout(options.statement_timeout / 2);
        let pool = SqlitePoolOptions::new()
            .acquire_timeout(options.statement_timeout)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false);
        let reading = connect.clone().pragma("query_only", "ON");
        Ok(Pools::Sqlite {
            writer: pool.clone().max_connections(1).connect_lazy_with(connect),
            readers: pool.max_connections(options.connections).connect_lazy_with(reading),
        })
    }

    fn postgres(connect: &PgConnectOptions, options: &Options) -> Self {
        let limit = milliseconds(options.statement_timeout);
        let name = connect.get_application_name().unwrap_or("hob");
        let connect = connect.clone().application_name(name);
        let connect = connect.statement_cache_capacity(MAX_CACHED_STATEMENTS).options([
            // Only explicit write transactions may write, as on SQLite.
            ("default_transaction_read_only", "on"),
            // Ends statements on the server after their caller has given up.
            ("statement_timeout", limit.as_str()),
            ("idle_in_transaction_session_timeout", limit.as_str()),
        ]);
        let pool = PgPoolOptions::new()
            .max_connections(options.connections)
            .acquire_timeout(options.connect_timeout)
            .test_before_acquire(false);
        Pools::Postgres {
            pool: pool.connect_lazy_with(connect),
            server: Reachability::new(options.away_timeout),
        }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            Pools::Sqlite { .. } => Dialect::Sqlite,
            Pools::Postgres { .. } => Dialect::Postgres,
        }
    }

    /// Takes a connection for a transaction that has not begun. Fails soon if the server is known to be away.
    pub(crate) async fn acquire(&self, mode: Mode) -> Result<Connection, Error> {
        Ok(match (self, mode) {
            (Pools::Sqlite { readers, .. }, Mode::Snapshot) => readers.acquire().await?.into(),
            (Pools::Sqlite { writer, .. }, Mode::Write(_)) => writer.acquire().await?.into(),
            (Pools::Postgres { pool, server }, _) => acquire_postgres(pool, server).await?,
        })
    }

    /// Records a call that failed because the database is unavailable.
    pub(crate) fn suspect(&self) {
        if let Pools::Postgres { pool, server } = self {
            server.suspect(pool);
        }
    }

    /// The maximum number of idle connections in the pool that may have been lost.
    pub(crate) fn max_stale(&self) -> u32 {
        match self {
            Pools::Sqlite { .. } => 0,
            Pools::Postgres { pool, .. } => pool.options().get_max_connections(),
        }
    }

    pub(crate) fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match self {
                Pools::Sqlite { writer, readers } => {
                    readers.close().await;
                    // The writer is closed last, because closing it checkpoints the write-ahead log into the file.
                    writer.close().await;
                }
                Pools::Postgres { pool, .. } => pool.close().await,
            }
        })
    }
}

async fn acquire_postgres(pool: &PgPool, server: &Reachability) -> Result<Connection, Error> {
    let connected = async {
        let mut connection = Connection::from(pool.acquire().await?);
        if server.is_away() {
            // A pooled connection to a frozen host looks alive.
            connection.run_script("SELECT 1").await?;
        }
        Ok(connection)
    };
    tokio::select! {
        biased;
        connection = connected => connection,
        () = server.give_up() => Err(Error::Unavailable { source: None }),
    }
}

fn milliseconds(duration: Duration) -> String {
    duration.as_millis().to_string()
}
