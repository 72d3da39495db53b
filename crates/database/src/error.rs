//! Errors, by what a caller can do about them.

use std::time::Duration;

/// Why a database operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database is unreachable, overloaded or too slow. Nothing was changed: the caller may retry later.
    #[error("the database is unavailable")]
    Unavailable {
        #[source]
        source: Option<sqlx::Error>,
    },
    /// The connection was lost during a commit: the change may or may not have been applied.
    #[error("lost the database connection during commit; the change may or may not have been applied")]
    Uncertain {
        #[source]
        source: Option<sqlx::Error>,
    },
    /// Every attempt conflicted with concurrent changes to the same rows. Nothing was changed.
    #[error("the transaction kept conflicting with concurrent changes of the same rows; retry later")]
    Conflict {
        #[source]
        source: sqlx::Error,
    },
    /// The change violates a constraint of the table. Nothing was changed.
    #[error("the change violates a {constraint} constraint of the database")]
    Violation {
        constraint: Constraint,
        #[source]
        source: sqlx::Error,
    },
    /// A statement of the transaction failed, so the transaction cannot continue or commit.
    #[error("the transaction cannot continue: one of its statements failed")]
    TransactionFailed,
    /// A query that must return a row returned none.
    #[error("query returned no row, expected one: {sql}")]
    NoRow { sql: String },
    /// A query returned more rows than may be held in memory.
    #[error("query returned more than {max} rows; read it in pages: {sql}")]
    TooManyRows { max: usize, sql: String },
    /// A stored value is not of the type that the program reads.
    #[error("cannot read column {column} as {expected}: found {found}")]
    Column { column: String, expected: &'static str, found: String },
    /// A bug in the caller: a query that cannot run, a transaction used after its end.
    #[error("{reason}")]
    Misuse { reason: String },
    /// A value that SQLite or PostgreSQL cannot store. It is refused on both.
    #[error("{reason}")]
    InvalidValue { reason: String },
    /// A cursor that does not belong to the list.
    #[error("the cursor does not belong to this list; start again with the first page")]
    InvalidCursor,
    #[error("the database address {reason}")]
    Address { reason: String },
    /// The database has no tables, or its file does not exist, and may not be created.
    #[error("the database does not exist")]
    NoDatabase,
    /// The migrations of the program do not match those of the database.
    #[error(transparent)]
    Migration(#[from] MigrationError),
    /// A copy or backup that was refused.
    #[error("{reason}")]
    Copy { reason: String },
    #[error("{what}")]
    File {
        what: String,
        #[source]
        source: std::io::Error,
    },
    /// Invalid SQL, or a damaged database.
    #[error("the database rejected a statement: {source}")]
    Database {
        #[source]
        source: sqlx::Error,
    },
}

/// The kinds of table constraints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constraint {
    Unique,
    ForeignKey,
    NotNull,
    Check,
}

hob_units::names!(Constraint { Unique = "unique", ForeignKey = "foreign key", NotNull = "not null", Check = "check" });

/// Why migrations were not applied. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    #[error(
        "the database is newer than this program: it has the migration {service} {name}, which this version does not \
         include; run a newer version of hob, or restore an older backup"
    )]
    Newer { service: String, name: String },
    #[error(
        "the migration {service} {name} was changed after it was applied to this database; restore its original text"
    )]
    Changed { service: String, name: String },
    #[error(
        "the migration {service} {name} is missing from this database, although later ones were applied; \
         restore a backup"
    )]
    Missing { service: String, name: String },
    #[error("the migration {service} {name} is out of order: number migrations 0001, 0002, … without gaps")]
    OutOfOrder { service: String, name: String },
    #[error("two sets of migrations have the same name {service}")]
    DuplicateName { service: String },
    #[error("the migration {service} {name} failed")]
    Failed {
        service: String,
        name: String,
        #[source]
        source: sqlx::Error,
    },
}

impl Error {
    /// How long to wait before a retry; `None` if a retry cannot help.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Unavailable { .. } | Error::Conflict { .. } => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    /// Whether a row with the same key already exists.
    pub fn is_unique_violation(&self) -> bool {
        matches!(self, Error::Violation { constraint: Constraint::Unique, .. })
    }

    pub(crate) fn invalid_value(reason: impl Into<String>) -> Self {
        Error::InvalidValue { reason: reason.into() }
    }

    pub(crate) fn misuse(reason: impl Into<String>) -> Self {
        Error::Misuse { reason: reason.into() }
    }

    /// The deadline passed.
    pub(crate) fn timed_out() -> Self {
        Error::Unavailable { source: None }
    }

    /// Whether another process holds the lock of the SQLite file.
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

    /// Whether the error means that the database is unavailable, and not that it rejected the statement.
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
            (true, code) if is_postgres_conflict(code) => Error::Conflict { source },
            (true, code) if is_postgres_unavailable(code) => Error::Unavailable { source: Some(source) },
            (false, code) if is_sqlite_unavailable(code) => Error::Unavailable { source: Some(source) },
            _ => Error::Database { source },
        }
    }
}

/// Serialization failure, deadlock, lock not available, and a transaction that was idle for so long that the server rolled
/// it back.
fn is_postgres_conflict(code: &str) -> bool {
    matches!(code, "40001" | "40P01" | "55P03" | "25P03")
}

/// Connection exception, insufficient resources, shutdown, crash, startup, statement timeout.
fn is_postgres_unavailable(code: &str) -> bool {
    code.starts_with("08") || code.starts_with("53") || code.starts_with("57")
}

const SQLITE_BUSY: u32 = 5;

/// BUSY, LOCKED, NOMEM, IOERR, FULL and CANTOPEN. The low byte of an extended code is its primary code.
fn is_sqlite_unavailable(code: &str) -> bool {
    let code = code.parse::<u32>().unwrap_or_default();
    matches!(code & 0xff, SQLITE_BUSY | 6 | 7 | 10 | 13 | 14)
}
