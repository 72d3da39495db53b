//! What can go wrong, sorted by what a caller can do about it.

use std::time::Duration;

/// Why the database could not answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database is away, too busy or too slow. Nothing was changed: the caller may try again later.
    #[error("the database cannot be reached")]
    Unavailable {
        #[source]
        source: Option<sqlx::Error>,
    },
    /// The connection was lost while a commit was under way: the change was made, or it was not.
    #[error("the database was lost sight of during a commit, which may have been made or not")]
    Uncertain {
        #[source]
        source: Option<sqlx::Error>,
    },
    /// Others kept changing the same rows, for as many attempts as a write is given.
    #[error("others kept changing the same rows")]
    Conflict {
        #[source]
        source: sqlx::Error,
    },
    /// The change contradicts a rule of the table. Nothing was changed.
    #[error("the change breaks a rule of the database ({constraint:?})")]
    Violation {
        constraint: Constraint,
        #[source]
        source: sqlx::Error,
    },
    /// A statement of the transaction failed, so that there is nothing to go on with or to commit.
    #[error("a statement of the transaction has failed")]
    Broken,
    /// A query that always answers with a row answered with none.
    #[error("a query that must answer with a row answered with none: {sql}")]
    NoRow { sql: String },
    /// A query answered with more rows than anybody should hold in memory.
    #[error("a query answered with more than {most} rows: {sql}")]
    TooManyRows { most: usize, sql: String },
    /// A stored value is not of the type that the program reads.
    #[error("the column {column} does not hold {expected}: {found}")]
    Column { column: String, expected: &'static str, found: String },
    /// A fault of the program: a query that cannot be run, a transaction used after its end.
    #[error("{reason}")]
    Misuse { reason: String },
    /// A value that one of the databases cannot store, so that neither is given it.
    #[error("{reason}")]
    Unfit { reason: String },
    /// A cursor that no page has given out.
    #[error("the cursor is not one of this list")]
    Cursor,
    #[error("the address of the database {reason}")]
    Address { reason: String },
    /// Database and program do not belong together, or not yet.
    #[error(transparent)]
    Migration(#[from] MigrationRefused),
    /// A copy or backup that would mix or lose rows.
    #[error("{reason}")]
    Copy { reason: String },
    #[error("{what}")]
    File {
        what: String,
        #[source]
        source: std::io::Error,
    },
    /// A statement that the database does not understand, or a database that is damaged.
    #[error("the database refuses a statement: {source}")]
    Database {
        #[source]
        source: sqlx::Error,
    },
}

/// The kinds of rules that a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constraint {
    Unique,
    ForeignKey,
    NotNull,
    Check,
}

/// Why migrations were not applied. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum MigrationRefused {
    #[error(
        "the database is newer than this program: they hold {service} {name}, which it does not know; \
         start the newer program, or restore a backup"
    )]
    Newer { service: String, name: String },
    #[error("the migration {service} {name} was changed after it was applied to this database")]
    Changed { service: String, name: String },
    #[error("the migration {service} {name} was left out when later ones were applied to this database")]
    LeftOut { service: String, name: String },
    #[error("the migrations of {service} are not numbered 0001, 0002, … without a gap: {name}")]
    Misnumbered { service: String, name: String },
    #[error("two sets of migrations are called {service}")]
    Twice { service: String },
    #[error("the migration {service} {name} failed")]
    Failed {
        service: String,
        name: String,
        #[source]
        source: sqlx::Error,
    },
}

impl Error {
    /// Whether the same call may succeed later, and how long to wait before it is worth a try.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Unavailable { .. } | Error::Conflict { .. } => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    /// Whether a row with the same key was there already.
    pub fn is_taken(&self) -> bool {
        matches!(self, Error::Violation { constraint: Constraint::Unique, .. })
    }

    pub(crate) fn unfit(reason: impl Into<String>) -> Self {
        Error::Unfit { reason: reason.into() }
    }

    pub(crate) fn misuse(reason: impl Into<String>) -> Self {
        Error::Misuse { reason: reason.into() }
    }

    /// An answer that did not come in time.
    pub(crate) fn too_slow() -> Self {
        Error::Unavailable { source: None }
    }

    /// Whether another process has the SQLite file to itself.
    pub(crate) fn is_busy(&self) -> bool {
        let Error::Unavailable { source: Some(sqlx::Error::Database(error)) } = self else {
            return false;
        };
        let code = error.code().and_then(|code| code.parse::<u32>().ok());
        code.is_some_and(|code| code & 0xff == SQLITE_BUSY)
    }

    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Error::Conflict { .. })
    }

    /// Whether the database is away, rather than the statement refused.
    pub(crate) fn is_unavailable(&self) -> bool {
        matches!(self, Error::Unavailable { .. })
    }
}

impl From<sqlx::Error> for Error {
    fn from(source: sqlx::Error) -> Self {
        use sqlx::Error as E;
        let database = match &source {
            E::Database(database) => database,
            E::Io(_) | E::Tls(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed => {
                return Error::Unavailable { source: Some(source) };
            }
            _ => return Error::Database { source },
        };
        let constraint = match database.kind() {
            sqlx::error::ErrorKind::UniqueViolation => Some(Constraint::Unique),
            sqlx::error::ErrorKind::ForeignKeyViolation => Some(Constraint::ForeignKey),
            sqlx::error::ErrorKind::NotNullViolation => Some(Constraint::NotNull),
            sqlx::error::ErrorKind::CheckViolation => Some(Constraint::Check),
            _ => None,
        };
        if let Some(constraint) = constraint {
            return Error::Violation { constraint, source };
        }
        let code = database.code().unwrap_or_default();
        let is_postgres = database.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some();
        match (is_postgres, code.as_ref()) {
            (true, code) if postgres_conflict(code) => Error::Conflict { source },
            (true, code) if postgres_away(code) => Error::Unavailable { source: Some(source) },
            (false, code) if sqlite_away(code) => Error::Unavailable { source: Some(source) },
            _ => Error::Database { source },
        }
    }
}

/// Serialization failure, deadlock, lock not available.
fn postgres_conflict(code: &str) -> bool {
    matches!(code, "40001" | "40P01" | "55P03")
}

/// Connection exceptions, lack of resources, shutdown, crash, start, a statement that took too long.
fn postgres_away(code: &str) -> bool {
    code.starts_with("08") || code.starts_with("53") || code.starts_with("57") || code == "25P03"
}

const SQLITE_BUSY: u32 = 5;

/// BUSY, LOCKED, NOMEM, IOERR, FULL and CANTOPEN with all their extended codes, whose low byte is the kind.
fn sqlite_away(code: &str) -> bool {
    let code = code.parse::<u32>().unwrap_or_default();
    matches!(code & 0xff, SQLITE_BUSY | 6 | 7 | 10 | 13 | 14)
}
