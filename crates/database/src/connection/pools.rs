//! The pools that connections come from: for SQLite one writer and several readers, for PostgreSQL one pool.

use std::fs::DirBuilder;
use std::io;
use std::path::Path;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{PgPool, SqlitePool};

use crate::address::{Address, Dialect, Place};
use crate::connection::{Connection, Mode};
use crate::{Error, Options};

/// As many as all services together have, so that none is prepared over and over.
const STATEMENTS: usize = 500;

#[derive(Clone)]
pub(crate) enum Pools {
    Sqlite { writer: SqlitePool, readers: SqlitePool },
    Postgres(PgPool),
}

impl Pools {
    /// Connects to nothing yet.
    pub(crate) fn new(address: &Address, options: &Options) -> Result<Self, Error> {
        match address.place() {
            Place::File(path) => Self::sqlite(path, options),
            Place::Server(server) => Ok(Self::postgres(&server.options, options)),
        }
    }

    fn sqlite(path: &Path, options: &Options) -> Result<Self, Error> {
        if let Some(folder) = path.parent() {
            make_folder(folder).map_err(|source| Error::File {
                what: format!("cannot make the folder {}", folder.display()),
                source,
            })?;
        }
        let connect = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .statement_cache_capacity(STATEMENTS)
            // Only another process can hold the lock; half, so that the database's own answer comes first.
            .busy_timeout(options.answer_within / 2);
        let pool = SqlitePoolOptions::new()
            .acquire_timeout(options.answer_within)
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
        let limit = milliseconds(options.answer_within);
        let name = connect.get_application_name().unwrap_or("hob");
        let connect = connect.clone().application_name(name);
        let connect = connect.statement_cache_capacity(STATEMENTS).options([
            // What is not a transaction that may write, only reads: as on SQLite.
            ("default_transaction_read_only", "on"),
            // What nobody waits for any more ends on the server too.
            ("statement_timeout", limit.as_str()),
            ("idle_in_transaction_session_timeout", limit.as_str()),
        ]);
        let pool = PgPoolOptions::new()
            .max_connections(options.connections)
            .acquire_timeout(options.connect_within)
            .test_before_acquire(false);
        Pools::Postgres(pool.connect_lazy_with(connect))
    }

    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            Pools::Sqlite { .. } => Dialect::Sqlite,
            Pools::Postgres(_) => Dialect::Postgres,
        }
    }

    /// A connection for a transaction that is not begun yet.
    pub(crate) async fn lend(&self, mode: Mode) -> Result<Connection, Error> {
        Ok(match (self, mode) {
            (Pools::Sqlite { readers, .. }, Mode::Snapshot) => readers.acquire().await?.into(),
            (Pools::Sqlite { writer, .. }, Mode::Write(_)) => writer.acquire().await?.into(),
            (Pools::Postgres(pool), _) => pool.acquire().await?.into(),
        })
    }

    /// How many connections there may be that were lost while they lay in the pool.
    pub(crate) fn most_stale(&self) -> u32 {
        match self {
            Pools::Sqlite { .. } => 0,
            Pools::Postgres(pool) => pool.options().get_max_connections(),
        }
    }

    pub(crate) async fn close(&self) {
        match self {
            Pools::Sqlite { writer, readers } => {
                readers.close().await;
                // Last, since it takes the write-ahead log into the file.
                writer.close().await;
            }
            Pools::Postgres(pool) => pool.close().await,
        }
    }
}

/// The database is nobody else's business on the machine.
fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

fn milliseconds(duration: Duration) -> String {
    duration.as_millis().to_string()
}
