//! A backup of a SQLite file, made while everybody goes on.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tokio::fs;

use crate::address::Dialect;
use crate::connection::Mode;
use crate::query::read::sealed::Source as _;
use crate::query::{Query, sql};
use crate::{Database, Error};

impl Database {
    /// Writes the database as they are now into a new file, which is itself a complete SQLite database.
    ///
    /// Only for SQLite: PostgreSQL has its own tools, and [`Database::copy`] goes anywhere. The file
    /// appears under its name once it is complete and on disk.
    pub async fn backup(&self, to: &Path) -> Result<(), Error> {
        let refuse = |reason: String| Err(Error::Copy { reason });
        if self.dialect() == Dialect::Postgres {
            return refuse("PostgreSQL is backed up with pg_dump, or copied into a SQLite file".to_owned());
        }
        if fs::try_exists(to).await.map_err(|source| failed("look for", to, source))? {
            return refuse(format!("{} is there already", to.display()));
        }
        let Some(text) = partial(to).to_str().map(str::to_owned) else {
            return refuse(format!("{} is not a name that SQLite takes", to.display()));
        };
        let written = self.write_backup(&text, to).await;
        if written.is_err() {
            // Half a backup is of no use to anybody.
            let _ = fs::remove_file(&text).await;
        }
        written
    }

    async fn write_backup(&self, partial: &str, to: &Path) -> Result<(), Error> {
        // Left behind by a backup that was killed.
        match fs::remove_file(partial).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed("replace", Path::new(partial), error));
            }
            _ => {}
        }
        // A reader, so that the writer goes on; not given back, since it may write from now on.
        let mut connection = self.pools().lend(Mode::Snapshot).await?;
        connection.run_script("PRAGMA query_only = OFF").await?;
        let vacuum: Query<()> = sql("VACUUM INTO $1").bind(partial);
        connection.execute(vacuum.statement(Dialect::Sqlite)?).await?;
        let finish = async {
            fs::File::open(partial).await?.sync_all().await?;
            fs::rename(partial, to).await?;
            match to.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                Some(folder) => fs::File::open(folder).await?.sync_all().await,
                None => Ok(()),
            }
        };
        finish.await.map_err(|source| failed("write", to, source))
    }
}

/// Beside the file itself, since it is renamed when it is complete.
fn partial(to: &Path) -> PathBuf {
    let mut name = OsString::from(to);
    name.push(".partial");
    name.into()
}

fn failed(verb: &str, path: &Path, source: std::io::Error) -> Error {
    Error::File { what: format!("cannot {verb} {}", path.display()), source }
}
