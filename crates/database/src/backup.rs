//! Backups: a backup is a SQLite file with the contents of a database of either dialect. Reads and writes continue while it
//! is written.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::fs;

use crate::address::{Address, Dialect, Location};
use crate::connection::Mode;
use crate::meta::DatabaseId;
use crate::migration::Migrations;
use crate::query::read::sealed::Source as _;
use crate::query::{Query, sql};
use crate::{Database, Error, Options, Read as _, private_file};

/// What SQLite appends to the name of a database that was not closed.
const LEFTOVERS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// How long the check of a large backup may take.
const CHECK_WITHIN: Duration = Duration::from_secs(3_600);

impl Database {
    /// Writes the contents at one point in time into a new file, which is itself a complete SQLite database. The file gets
    /// its final name after it is complete and synced to disk.
    pub async fn backup(&self, to: &Path) -> Result<(), Error> {
        if exists(to).await? {
            return refuse(format!("{} already exists; choose another file name", to.display()));
        }
        // In the same folder as the final file, so that the rename is atomic.
        let partial = private_file::with_suffix(to, ".partial");
        let written = self.write_backup(&partial, to).await;
        if written.is_err() {
            remove(&partial).await;
        }
        written
    }

    async fn write_backup(&self, partial: &Path, to: &Path) -> Result<(), Error> {
        // A backup that was killed leaves its partial file behind.
        remove(partial).await;
        // SQLite accepts an empty file.
        create(partial)?;
        match self.dialect() {
            Dialect::Sqlite => self.vacuum_into(partial).await?,
            Dialect::Postgres => self.copy(&Address::sqlite(partial)).await.map(drop)?,
        }
        publish(partial, to).await
    }

    async fn vacuum_into(&self, file: &Path) -> Result<(), Error> {
        let Some(name) = file.to_str() else {
            let name = file.display();
            return refuse(format!("the file name {name} is not valid UTF-8, which SQLite requires"));
        };
        // Uses a reader connection, so that writes continue. The connection is not released to the pool, because it no
        // longer has `query_only` and must not be reused.
        let mut connection = self.pools().acquire(Mode::Snapshot).await?;
        connection.run_script("PRAGMA query_only = OFF").await?;
        let vacuum: Query<()> = sql("VACUUM INTO $1").bind(name);
        connection.execute(vacuum.statement(Dialect::Sqlite)?).await.map(drop)
    }

    /// Restores a backup into a SQLite file that does not exist, or into an empty PostgreSQL database. Checks the backup, and
    /// applies pending migrations to a copy of it.
    ///
    /// The restored database gets a new id. State in the store that was derived from the lost database is newer than the
    /// backup, and a store that belongs to another id is not used. Clients of services that take part of the id for their
    /// positions notice that the history has changed.
    pub async fn restore(backup: &Path, to: &Address, sets: &[Migrations]) -> Result<(), Error> {
        let working = working_copy(backup, to).await?;
        let restored = restore_from(&working, backup, to, sets).await;
        if restored.is_err() || to.dialect() == Dialect::Postgres {
            remove(&working).await;
        }
        restored
    }

    /// Checks the pages, indexes and references of a SQLite database.
    async fn check_integrity(&self) -> Result<(), Error> {
        let problems: Vec<(String,)> =
            self.all(sql("SELECT integrity_check FROM pragma_integrity_check")).await?;
        if let Some((problem,)) = problems.into_iter().find(|(problem,)| problem != "ok") {
            return refuse(format!("the backup is damaged: {problem}"));
        }
        let missing: Query<(String,)> = sql("SELECT \"table\" FROM pragma_foreign_key_check LIMIT 1");
        match self.optional(missing).await? {
            Some((table,)) => {
                refuse(format!("the backup is damaged: a row of {table} refers to a missing row"))
            }
            None => Ok(()),
        }
    }
}

/// Copies the backup to where it can be changed: beside the target, or into the folder for temporary files.
async fn working_copy(backup: &Path, to: &Address) -> Result<PathBuf, Error> {
    let working = match to.location() {
        Location::File(file) => {
            for suffix in [""].iter().chain(&LEFTOVERS) {
                let other = private_file::with_suffix(file, suffix);
                if exists(&other).await? {
                    return refuse(format!("{} already exists; move it away first", other.display()));
                }
            }
            if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                private_file::create_folder(folder).map_err(|error| failed("create", folder, error))?;
            }
            private_file::with_suffix(file, ".partial")
        }
        Location::Server(_) => std::env::temp_dir().join(format!("hob-restore-{}.db", DatabaseId::random())),
    };
    remove(&working).await;
    create(&working)?;
    // The mode of the backup is not copied: the file stays private.
    let copied = async {
        let mut from = fs::File::open(backup).await?;
        let mut to = fs::File::options().write(true).open(&working).await?;
        tokio::io::copy(&mut from, &mut to).await?;
        to.sync_all().await
    };
    match copied.await {
        Ok(()) => Ok(working),
        Err(error) => {
            remove(&working).await;
            Err(failed("copy", backup, error))
        }
    }
}

async fn restore_from(working: &Path, backup: &Path, to: &Address, sets: &[Migrations]) -> Result<(), Error> {
    let options = Options { statement_timeout: CHECK_WITHIN, ..Options::default() };
    let database = match Database::open_existing_with(&Address::sqlite(working), sets, options).await {
        Err(Error::NoDatabase | Error::Database { .. }) => {
            return refuse(format!("{} is not a backup of Hob", backup.display()));
        }
        opened => opened?,
    };
    let prepared = prepare(&database, to).await;
    database.close().await;
    prepared?;
    match to.location() {
        Location::File(file) => publish(working, file).await,
        Location::Server(_) => Ok(()),
    }
}

async fn prepare(database: &Database, to: &Address) -> Result<(), Error> {
    database.check_integrity().await?;
    let renewed = sql("UPDATE hob_meta SET id = $1, epoch = epoch + 1");
    database.execute(renewed.bind(DatabaseId::random())).await?;
    match to.dialect() {
        Dialect::Sqlite => Ok(()),
        Dialect::Postgres => database.copy(to).await.map(drop),
    }
}

/// Gives a complete file its final name, durably.
async fn publish(partial: &Path, to: &Path) -> Result<(), Error> {
    let published = async {
        fs::File::open(partial).await?.sync_all().await?;
        fs::rename(partial, to).await?;
        match to.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            Some(folder) => fs::File::open(folder).await?.sync_all().await,
            None => Ok(()),
        }
    };
    published.await.map_err(|error| failed("write", to, error))
}

fn create(file: &Path) -> Result<(), Error> {
    let created = private_file::options().write(true).create_new(true).open(file);
    created.map(drop).map_err(|error| failed("create", file, error))
}

/// Deletes a file that is not needed any more, with what SQLite has left beside it. If that fails, creating it again reports
/// the error.
async fn remove(file: &Path) {
    for suffix in [""].iter().chain(&LEFTOVERS) {
        let _ = fs::remove_file(private_file::with_suffix(file, suffix)).await;
    }
}

async fn exists(file: &Path) -> Result<bool, Error> {
    fs::try_exists(file).await.map_err(|error| failed("check", file, error))
}

fn refuse<T>(reason: String) -> Result<T, Error> {
    Err(Error::Copy { reason })
}

fn failed(verb: &str, path: &Path, source: std::io::Error) -> Error {
    Error::File { what: format!("cannot {verb} {}", path.display()), source }
}
