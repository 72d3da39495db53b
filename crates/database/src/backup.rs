//! Online backup of a SQLite database: reads and writes continue while it runs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tokio::fs;

use crate::address::Dialect;
use crate::connection::Mode;
use crate::query::read::sealed::Source as _;
use crate::query::{Query, sql};
use crate::{Database, Error};

impl Database {
    /// Writes the current contents into a new file, which is itself a complete SQLite database.
    ///
    /// For SQLite only: use `pg_dump` for PostgreSQL, or [`Database::copy`] for either. The file gets its final
    /// name after it is complete and synced to disk.
    pub async fn backup(&self, to: &Path) -> Result<(), Error> {
        let refuse = |reason: String| Err(Error::Copy { reason });
        if self.dialect() == Dialect::Postgres {
            return refuse(
                "cannot back up a PostgreSQL database to a file; use pg_dump, or copy it into a SQLite file"
                    .to_owned(),
            );
        }
        if fs::try_exists(to).await.map_err(|source| failed("check", to, source))? {
            return refuse(format!("{} already exists; choose another file name", to.display()));
        }
        let Some(text) = partial(to).to_str().map(str::to_owned) else {
            return refuse(format!(
                "the file name {} is not valid UTF-8, which SQLite requires",
                to.display()
            ));
        };
        let written = self.write_backup(&text, to).await;
        if written.is_err() {
            let _ = fs::remove_file(&text).await;
        }
        written
    }

    async fn write_backup(&self, partial: &str, to: &Path) -> Result<(), Error> {
        // A backup that was killed leaves its partial file behind.
        match fs::remove_file(partial).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed("replace", Path::new(partial), error));
            }
            _ => {}
        }
        // A reader connection, so that writes continue. It is not released: without `query_only` it must not be reused.
        let mut connection = self.pools().acquire(Mode::Snapshot).await?;
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

/// In the same folder as the final file, so that the rename is atomic.
fn partial(to: &Path) -> PathBuf {
    let mut name = OsString::from(to);
    name.push(".partial");
    name.into()
}

fn failed(verb: &str, path: &Path, source: std::io::Error) -> Error {
    Error::File { what: format!("cannot {verb} {}", path.display()), source }
}
