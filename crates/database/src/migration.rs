//! Migrations: how the tables came to be what they are, one set per service.
//!
//! All that is missing is applied at start, in one transaction and under a lock, so that many nodes may start
//! at once and a migration that fails leaves nothing behind.

use std::time::Duration;

use tokio::time::Instant;

use crate::address::Dialect;
use crate::connection::pools::Pools;
use crate::connection::{Connection, Isolation, Mode};
use crate::error::MigrationRefused;
use crate::meta::DatabaseId;
use crate::query::{PerDialect, Query, sql};
use crate::transaction::retry::Backoff;
use crate::value::row::FromRow;
use crate::{Error, UnixMs, from_row};

/// One step, written for each of the databases.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// `0001_monitors`: the number says when its turn is.
    pub name: &'static str,
    pub sqlite: &'static str,
    pub postgres: &'static str,
}

/// The steps that made the tables of one service. A step that was applied anywhere is never changed.
#[derive(Clone, Copy, Debug)]
pub struct Migrations {
    pub service: &'static str,
    pub steps: &'static [Migration],
}

/// A set of migrations from the files `migrations/sqlite/NAME.sql` and `migrations/postgres/NAME.sql` of the
/// crate: `migrations!("uptime": "0001_monitors", "0002_incidents")`. A name without both files does not
/// compile. Another folder is named as in `migrations!("notes" in "tests/notes": "0001_notes")`.
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
pub(crate) const OWN: Migrations = migrations!("records": "0001_meta", "0002_outbox");

/// A start waits this long for others that migrate the same database.
const START_WITHIN: Duration = Duration::from_secs(60);

const TABLE: PerDialect = PerDialect {
    sqlite: "CREATE TABLE IF NOT EXISTS hob_migrations (
                 service TEXT NOT NULL, number INTEGER NOT NULL, name TEXT NOT NULL, checksum TEXT NOT NULL,
                 applied_at INTEGER NOT NULL, PRIMARY KEY (service, number)) STRICT, WITHOUT ROWID",
    postgres: r#"CREATE TABLE IF NOT EXISTS hob_migrations (
                 service TEXT COLLATE "C" NOT NULL, number BIGINT NOT NULL, name TEXT NOT NULL,
                 checksum TEXT NOT NULL, applied_at BIGINT NOT NULL, PRIMARY KEY (service, number))"#,
};

/// Several nodes that start wait here for each other (SQLite's write lock does the same); a migration may
/// take longer than any statement of a service. The number is just one that nobody else uses.
const POSTGRES_LOCK: &str = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '60s';
     SELECT pg_advisory_xact_lock(7521405093420117362)";

struct Applied {
    service: String,
    number: i64,
    name: String,
    checksum: String,
}

from_row!(Applied { service, number, name, checksum });

/// Brings the database up to date, and answers with their id.
pub(crate) async fn apply(pools: &Pools, sets: &[Migrations]) -> Result<DatabaseId, Error> {
    let mut backoff = Backoff::until(Instant::now() + START_WITHIN);
    loop {
        match apply_once(pools, sets).await {
            // To make a file one with a write-ahead log, SQLite must have it alone, and does not wait.
            Err(error) if error.is_busy() && backoff.pause().await => {}
            outcome => return outcome,
        }
    }
}

async fn apply_once(pools: &Pools, sets: &[Migrations]) -> Result<DatabaseId, Error> {
    let mode = Mode::Write(Isolation::Committed);
    let mut connection = pools.lend(mode).await?;
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

/// Brings the database up to date within a transaction that has just begun.
pub(crate) async fn apply_in(
    connection: &mut Connection,
    sets: &[Migrations],
    now: UnixMs,
) -> Result<DatabaseId, Error> {
    let sets: Vec<Migrations> = [OWN].iter().chain(sets).copied().collect();
    check(&sets)?;
    let dialect = connection.dialect();
    if dialect == Dialect::Postgres {
        connection.run_script(POSTGRES_LOCK).await?;
    }
    execute(connection, sql(TABLE)).await?;
    let applied = applied(connection).await?;
    for migration in missing(&sets, &applied, dialect)? {
        run(connection, &migration, now).await?;
    }
    let id =
        sql("INSERT INTO hob_meta (one, id, epoch, created_at) VALUES (1, $1, 1, $2) ON CONFLICT DO NOTHING");
    execute(connection, id.bind(DatabaseId::random()).bind(now)).await?;
    let id: Query<(DatabaseId,)> = sql("SELECT id FROM hob_meta");
    let rows = connection.fetch(id.statement(dialect)?, 1).await?;
    let (id,) = rows.first().map_or_else(|| Err(Error::Broken), FromRow::from_row)?;
    Ok(id)
}

async fn run(connection: &mut Connection, migration: &Pending, now: UnixMs) -> Result<(), Error> {
    let Pending { service, name, number, text } = *migration;
    let run = connection.run_script(text).await;
    run.map_err(|source| MigrationRefused::Failed {
        service: service.to_owned(),
        name: name.to_owned(),
        source,
    })?;
    let row = sql("INSERT INTO hob_migrations (service, number, name, checksum, applied_at)
                   VALUES ($1, $2, $3, $4, $5)");
    let row = row.bind(service).bind(number).bind(name).bind(checksum(text)).bind(now);
    execute(connection, row).await?;
    tracing::info!(service, migration = name, "applied a migration");
    Ok(())
}

/// What the database has been through.
async fn applied(connection: &mut Connection) -> Result<Vec<Applied>, Error> {
    let query: Query<Applied> =
        sql("SELECT service, number, name, checksum FROM hob_migrations ORDER BY 1, 2");
    let statement = query.statement(connection.dialect())?;
    let rows = connection.fetch(statement, usize::MAX).await?;
    rows.iter().map(Applied::from_row).collect()
}

async fn execute(connection: &mut Connection, query: Query<()>) -> Result<(), Error> {
    let statement = query.statement(connection.dialect())?;
    connection.execute(statement).await.map(drop)
}

/// A step that the database may not have been through.
struct Pending {
    service: &'static str,
    name: &'static str,
    number: i64,
    text: &'static str,
}

/// What is to be applied, or why it must not be.
fn missing(
    sets: &[Migrations],
    applied: &[Applied],
    dialect: Dialect,
) -> Result<Vec<Pending>, MigrationRefused> {
    let knows = |row: &Applied| {
        let numbers = |set: &Migrations| usize::try_from(row.number).is_ok_and(|n| n <= set.steps.len());
        sets.iter().any(|set| set.service == row.service && numbers(set))
    };
    if let Some(row) = applied.iter().find(|row| !knows(row)) {
        return Err(MigrationRefused::Newer { service: row.service.clone(), name: row.name.clone() });
    }
    let mut missing = Vec::new();
    for set in sets {
        let rows: Vec<&Applied> = applied.iter().filter(|row| row.service == set.service).collect();
        for pending in pending(set, dialect) {
            let (service, name) = (set.service.to_owned(), pending.name.to_owned());
            match rows.iter().find(|row| row.number == pending.number) {
                Some(row) if !pending.is(row) => return Err(MigrationRefused::Changed { service, name }),
                Some(_) => {}
                None if rows.iter().any(|row| row.number > pending.number) => {
                    return Err(MigrationRefused::LeftOut { service, name });
                }
                None => missing.push(pending),
            }
        }
    }
    Ok(missing)
}

fn pending(set: &Migrations, dialect: Dialect) -> impl Iterator<Item = Pending> {
    let service = set.service;
    let steps = (1..).zip(set.steps);
    steps.map(move |(number, step)| Pending {
        service,
        name: step.name,
        number,
        text: match dialect {
            Dialect::Sqlite => step.sqlite,
            Dialect::Postgres => step.postgres,
        },
    })
}

impl Pending {
    /// Whether this is what was applied.
    fn is(&self, row: &Applied) -> bool {
        self.name == row.name && checksum(self.text) == row.checksum
    }
}

/// Whether the sets themselves are in order.
fn check(sets: &[Migrations]) -> Result<(), MigrationRefused> {
    for (index, set) in sets.iter().enumerate() {
        if sets[..index].iter().any(|other| other.service == set.service) {
            return Err(MigrationRefused::Twice { service: set.service.to_owned() });
        }
        for (number, step) in (1..).zip(set.steps) {
            if !step.name.starts_with(&format!("{number:04}_")) {
                return Err(MigrationRefused::Misnumbered {
                    service: set.service.to_owned(),
                    name: step.name.to_owned(),
                });
            }
        }
    }
    Ok(())
}

/// Of the text without carriage returns, which a check-out on another system may add.
fn checksum(text: &str) -> String {
    sha1_smol::Sha1::from(text.replace('\r', "")).digest().to_string()
}
