//! Files and folders that only their owner may access.
//!
//! A file gets its mode when it is created, whatever the umask is, so that other users can never open it. SQLite
//! gives the files beside a database (`-wal`, `-shm`, `-journal`) the mode of the database.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// What SQLite appends to the name of a database.
const SQLITE_SUFFIXES: [&str; 4] = ["", "-wal", "-shm", "-journal"];

/// Creates a folder, with its parents, unless it exists.
pub fn create_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// Options for opening a file. If the caller adds `create`, a new file is private.
#[must_use]
pub fn options() -> OpenOptions {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates an empty SQLite database with its folder, unless it exists. SQLite itself would create it with the mode
/// 0644.
pub fn create_sqlite(path: &Path) -> io::Result<()> {
    // When a process closes a file, it loses all its locks on that file, including the locks of SQLite. So this
    // function must not open an existing database, and no other thread may open the new database before this function
    // has closed it.
    static CREATING: Mutex<()> = Mutex::new(());
    let _guard = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(folder) = path.parent() {
        create_folder(folder)?;
    }
    if !path.try_exists()? {
        options().write(true).create(true).truncate(false).open(path)?;
    }
    Ok(())
}

/// Removes the access of other users to a SQLite database that an earlier version or another program has created.
pub fn restrict_sqlite(path: &Path) {
    for suffix in SQLITE_SUFFIXES {
        restrict(&with_suffix(path, suffix));
    }
}

/// Removes the access of other users to a file or folder, and logs a warning if they had any access. Does nothing if
/// the file is missing or belongs to another user.
#[cfg(unix)]
pub fn restrict(path: &Path) {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    const OTHERS: u32 = 0o077;
    let Ok(metadata) = path.metadata() else { return };
    let old = metadata.permissions().mode() & 0o7777;
    let new = old & !OTHERS;
    if old == new {
        return;
    }
    let (old_mode, new_mode) = (format!("{old:04o}"), format!("{new:04o}"));
    match std::fs::set_permissions(path, Permissions::from_mode(new)) {
        Ok(()) => {
            tracing::warn!(path = %path.display(), old_mode, new_mode, "removed the permissions of other users on a file");
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), old_mode, new_mode, %error, "failed to remove the permissions of other users on a file");
        }
    }
}

/// Other systems have no modes.
#[cfg(not(unix))]
pub fn restrict(_: &Path) {}

/// The path with a suffix appended to its last part.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
