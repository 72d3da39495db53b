//! Migrations: the steps that create and change tables, one set per service.
//!
//! Pending migrations are applied at start, in one transaction and under a lock. Therefore several nodes may start at
//! the same time, and a migration that fails changes nothing.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::address::Dialect;
use crate::connection::pools::Pools;
use crate::connection::{Connection, Isolation, Mode};
use crate::error::MigrationError;
use crate::meta::DatabaseId;
use crate::query::{PerDialect, Query, sql};
use crate::transaction::retry::Retries;
use crate::value::row::FromRow;
use crate::{Error, UnixMs, from_row};

/// One step, written for both dialects.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// `0001_monitors`. Steps run in the order of their numbers.
    pub name: &'static str,
    pub sqlite: &'static str,
    pub postgres: &'static str,
}

/// The steps of one service. A released step must never be changed, because databases store its checksum.
#[derive(Clone, Copy, Debug)]
pub struct Migrations {
    pub service: &'static str,
    pub steps: &'static [Migration],
}

/// A set of migrations from the files `migrations/sqlite/NAME.sql` and `migrations/postgres/NAME.sql` of the
/// crate: `migrations!("uptime": "0001_monitors", "0002_incidents")`. A missing file is a compile error. For another
/// folder: `migrations!("notes" in "tests/notes": "0001_notes")`.
#[macro_export]
macro_rules! migrations {
    ($service:literal: $($name:literal),+ $(,)?) => {
        $crate::migrations!($service in "migrations": $($name),+)
    };
    ($service:literal in $folder:literal: $($name:literal),+ $(,)?) => {
        $crate::Migrations {
            service: $service,
            steps: &[$($crate::Migration {
                name: $name,
                sqlite: include_str!(concat!(
                    env!("CARGO_MANIFEST_DIR"), "/", $folder, "/sqlite/", $name, ".sql"
                )),
                postgres: include_str!(concat!(
                    env!("CARGO_MANIFEST_DIR"), "/", $folder, "/postgres/", $name, ".sql"
                )),
            }),+],
        }
    };
}

/// The tables of this crate.
const OWN_MIGRATIONS: Migrations = migrations!("database": "0001_meta", "0002_outbox");

/// The name of this crate's migrations in databases of earlier versions.
const RENAMED: &str = "UPDATE hob_migrations SET service = 'database' WHERE service = 'records'";
const APPLIED: &str =
    "SELECT CASE service WHEN 'records' THEN 'database' ELSE service END AS service, number, name, checksum
     FROM hob_migrations ORDER BY 1, 2";

/// How long a starting node waits for other nodes that migrate the same database.
const LOCK_WITHIN: Duration = Duration::from_secs(60);

const TABLE: PerDialect = PerDialect {
    sqlite: "CREATE TABLE IF NOT EXISTS hob_migrations (
                 service TEXT NOT NULL, number INTEGER NOT NULL, name TEXT NOT NULL, checksum TEXT NOT NULL,
                 applied_at INTEGER NOT NULL, PRIMARY KEY (service, number)) STRICT, WITHOUT ROWID",
    postgres: r#"CREATE TABLE IF NOT EXISTS hob_migrations (
                 service TEXT COLLATE "C" NOT NULL, number BIGINT NOT NULL, name TEXT NOT NULL,
                 checksum TEXT NOT NULL, applied_at BIGINT NOT NULL, PRIMARY KEY (service, number))"#,
};

/// Starting nodes wait here for each other. On SQLite they wait for the write lock. A migration may run longer than the
/// statements of services. The number is arbitrary; no other advisory lock uses it.
const POSTGRES_LOCK: &str = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '60s';
     SELECT pg_advisory_xact_lock(7521405093420117362)";

/// A migration that has not been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingMigration {
    pub service: &'static str,
    pub name: &'static str,
}

struct Applied {
    service: String,
    number: i64,
    name: String,
    checksum: String,
}

from_row!(Applied { service, number, name, checksum });

/// Applies pending migrations, and returns the id of the database.
pub(crate) fn apply<'a>(
    pools: &'a Pools,
    sets: &'a [Migrations],
) -> BoxFuture<'a, Result<DatabaseId, Error>> {
    Box::pin(async move {
        let mut retries = Retries::until(Instant::now() + LOCK_WITHIN);
        loop {
            match apply_once(pools, sets).await {
                // Switching a file to a write-ahead log needs an exclusive lock, and SQLite does not wait for this
                // lock.
                Err(error) if error.is_busy() && retries.wait().await => {}
                result => return result,
            }
        }
    })
}

/// The migrations that [`apply`] would apply, in order.
pub(crate) async fn pending_in(pools: &Pools, sets: &[Migrations]) -> Result<Vec<PendingMigration>, Error> {
    let sets = with_own(sets)?;
    let mut connection = pools.acquire(Mode::Snapshot).await?;
    let applied = applied(&mut connection).await?;
    let pending = pending(&sets, &applied, connection.dialect())?;
    connection.release();
    Ok(pending.iter().map(|step| PendingMigration { service: step.service, name: step.name }).collect())
}

/// Whether the database has the tables of this crate.
pub(crate) fn is_initialized(pools: &Pools) -> BoxFuture<'_, Result<bool, Error>> {
    const TABLES: PerDialect = PerDialect {
        sqlite: "SELECT count(*) FROM sqlite_master WHERE name = 'hob_migrations'",
        postgres: "SELECT CASE WHEN to_regclass('hob_migrations') IS NULL THEN 0::bigint ELSE 1::bigint END",
    };
    Box::pin(async move {
        let mut connection = pools.acquire(Mode::Snapshot).await?;
        let query: Query<(i64,)> = sql(TABLES);
        let rows = connection.fetch(query.statement(connection.dialect())?, 1).await?;
        connection.release();
        let (tables,) = rows.first().map_or_else(|| Err(Error::TransactionFailed), <(i64,)>::from_row)?;
        Ok(tables > 0)
    })
}

async fn apply_once(pools: &Pools, sets: &[Migrations]) -> Result<DatabaseId, Error> {
    let mode = Mode::Write(Isolation::ReadCommitted);
    let mut connection = pools.acquire(mode).await?;
    let now = connection.begin(mode).await?;
    match apply_in(&mut connection, sets, now).await {
        Ok(id) => {
            connection.run_script("COMMIT").await?;
            connection.release();
            Ok(id)
        }
        Err(error) => {
            if connection.run_script("ROLLBACK").await.is_ok() {
                connection.release();
            }
            Err(error)
        }
    }
}

/// Applies pending migrations in a transaction that has just begun.
pub(crate) async fn apply_in(
    connection: &mut Connection,
    sets: &[Migrations],
    now: UnixMs,
) -> Result<DatabaseId, Error> {
    let sets = with_own(sets)?;
    let dialect = connection.dialect();
    if dialect == Dialect::Postgres {
        connection.run_script(POSTGRES_LOCK).await?;
    }
    execute(connection, sql(TABLE)).await?;
    execute(connection, sql(RENAMED)).await?;
    let applied = applied(connection).await?;
    for step in pending(&sets, &applied, dialect)? {
        run(connection, &step, now).await?;
    }
    let id =
        sql("INSERT INTO hob_meta (one, id, epoch, created_at) VALUES (1, $1, 1, $2) ON CONFLICT DO NOTHING");
    execute(connection, id.bind(DatabaseId::random()).bind(now)).await?;
    let id: Query<(DatabaseId,)> = sql("SELECT id FROM hob_meta");
    let rows = connection.fetch(id.statement(dialect)?, 1).await?;
    let (id,) = rows.first().map_or_else(|| Err(Error::TransactionFailed), FromRow::from_row)?;
    Ok(id)
}

async fn run(connection: &mut Connection, step: &Step, now: UnixMs) -> Result<(), Error> {
    let Step { service, name, number, text } = *step;
    let run = connection.run_script(text).await;
    run.map_err(|source| MigrationError::Failed {
        service: service.to_owned(),
        name: name.to_owned(),
        source,
    })?;
    let row = sql("INSERT INTO hob_migrations (service, number, name, checksum, applied_at)
                   VALUES ($1, $2, $3, $4, $5)");
    let row = row.bind(service).bind(number).bind(name).bind(checksum(text)).bind(now);
    execute(connection, row).await?;
    tracing::info!(service, migration = name, "migration applied");
    Ok(())
}

/// The sets with that of this crate in front, checked.
fn with_own(sets: &[Migrations]) -> Result<Vec<Migrations>, MigrationError> {
    let sets: Vec<Migrations> = [OWN_MIGRATIONS].iter().chain(sets).copied().collect();
    check(&sets)?;
    Ok(sets)
}

/// The migrations that this database has applied.
async fn applied(connection: &mut Connection) -> Result<Vec<Applied>, Error> {
    let query: Query<Applied> = sql(APPLIED);
    let statement = query.statement(connection.dialect())?;
    let rows = connection.fetch(statement, usize::MAX).await?;
    rows.iter().map(Applied::from_row).collect()
}

async fn execute(connection: &mut Connection, query: Query<()>) -> Result<(), Error> {
    let statement = query.statement(connection.dialect())?;
    connection.execute(statement).await.map(drop)
}

/// A step of the program, for the dialect of the database.
struct Step {
    service: &'static str,
    name: &'static str,
    number: i64,
    text: &'static str,
}

/// The steps to apply, or why they must not be applied.
fn pending(sets: &[Migrations], applied: &[Applied], dialect: Dialect) -> Result<Vec<Step>, MigrationError> {
    let is_known = |row: &Applied| {
        let has_step = |set: &Migrations| usize::try_from(row.number).is_ok_and(|n| n <= set.steps.len());
        sets.iter().any(|set| set.service == row.service && has_step(set))
    };
    if let Some(row) = applied.iter().find(|row| !is_known(row)) {
        return Err(MigrationError::Newer { service: row.service.clone(), name: row.name.clone() });
    }
    let mut pending = Vec::new();
    for set in sets {
        let rows: Vec<&Applied> = applied.iter().filter(|row| row.service == set.service).collect();
        for step in steps(set, dialect) {
            let (service, name) = (set.service.to_owned(), step.name.to_owned());
            match rows.iter().find(|row| row.number == step.number) {
                Some(row) if !step.matches(row) => return Err(MigrationError::Changed { service, name }),
                Some(_) => {}
                None if rows.iter().any(|row| row.number > step.number) => {
                    return Err(MigrationError::Missing { service, name });
                }
                None => pending.push(step),
            }
        }
    }
    Ok(pending)
}

fn steps(set: &Migrations, dialect: Dialect) -> impl Iterator<Item = Step> {
    let service = set.service;
    let steps = (1..).zip(set.steps);
    steps.map(move |(number, step)| Step {
        service,
        name: step.name,
        number,
        text: match dialect {
            Dialect::Sqlite => step.sqlite,
            Dialect::Postgres => step.postgres,
        },
    })
}

impl Step {
    fn matches(&self, row: &Applied) -> bool {
        self.name == row.name && checksum(self.text) == row.checksum
    }
}

/// Checks the names and numbers of the sets.
fn check(sets: &[Migrations]) -> Result<(), MigrationError> {
    for (index, set) in sets.iter().enumerate() {
        if sets[..index].iter().any(|other| other.service == set.service) {
            return Err(MigrationError::DuplicateName { service: set.service.to_owned() });
        }
        for (number, step) in (1..).zip(set.steps) {
            if !step.name.starts_with(&format!("{number:04}_")) {
                return Err(MigrationError::OutOfOrder {
                    service: set.service.to_owned(),
                    name: step.name.to_owned(),
                });
            }
        }
    }
    Ok(())
}

/// Ignores carriage returns, which git may add on Windows.
fn checksum(text: &str) -> String {
    sha1_smol::Sha1::from(text.replace('\r', "")).digest().to_string()
}
