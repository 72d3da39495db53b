//! Online backup of a SQLite database: reads and writes continue while it runs.

use std::path::Path;

use tokio::fs;

use crate::address::Dialect;
use crate::connection::Mode;
use crate::query::read::sealed::Source as _;
use crate::query::{Query, sql};
use crate::{Database, Error, private_file};

impl Database {
    /// Writes the current contents into a new file, which is itself a complete SQLite database.
    ///
    /// Supports only SQLite. For PostgreSQL use `pg_dump`; [`Database::copy`] works for both. The file gets its final
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
        // In the same folder as the final file, so that the rename is atomic.
        let Some(text) = private_file::with_suffix(to, ".partial").to_str().map(str::to_owned) else {
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
        // SQLite accepts an empty file.
        let created = private_file::options().write(true).create_new(true).open(partial);
        created.map_err(|source| failed("create", Path::new(partial), source))?;
        // Uses a reader connection, so that writes continue. The connection is not released to the pool, because it no
        // longer has `query_only` and must not be reused.
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

fn failed(verb: &str, path: &Path, source: std::io::Error) -> Error {
    Error::File { what: format!("cannot {verb} {}", path.display()), source }
}
