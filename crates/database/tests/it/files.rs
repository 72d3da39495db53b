//! The files of a SQLite database: only their owner may read them.
#![cfg(unix)]

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use hob_database::{Address, Database};

use crate::notes::{self, MIGRATIONS, NoteId};

#[track_caller]
fn mode(path: &Path) -> u32 {
    path.metadata().unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions().mode() & 0o777
}

async fn open(path: &Path) -> Database {
    let database = Database::open(&Address::sqlite(path), &[MIGRATIONS]).await.unwrap();
    notes::add(&database, &NoteId("n1".to_owned()), "ada", "On engines").await.unwrap();
    database
}

#[tokio::test]
async fn new_files_are_private() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new").join("data").join("hob.db");
    let database = open(&path).await;
    database.backup(&folder.path().join("backup.db")).await.unwrap();
    database.copy(&Address::sqlite(folder.path().join("copies").join("copy.db"))).await.unwrap();
    for (name, expected) in [
        ("new", 0o700),
        ("new/data", 0o700),
        ("new/data/hob.db", 0o600),
        ("new/data/hob.db-wal", 0o600),
        ("new/data/hob.db-shm", 0o600),
        ("backup.db", 0o600),
        ("copies", 0o700),
        ("copies/copy.db", 0o600),
    ] {
        assert_eq!(mode(&folder.path().join(name)), expected, "{name}");
    }
}

#[tokio::test]
async fn access_of_other_users_is_removed_and_that_of_the_owner_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hob.db");
    let database = open(&path).await;
    for name in ["hob.db", "hob.db-wal", "hob.db-shm"] {
        set_permissions(folder.path().join(name), Permissions::from_mode(0o664)).unwrap();
    }
    // In use by this process: the second handle must not disturb the first.
    let second = Database::open(&Address::sqlite(&path), &[MIGRATIONS]).await.unwrap();
    for name in ["hob.db", "hob.db-wal", "hob.db-shm"] {
        assert_eq!(mode(&folder.path().join(name)), 0o600, "{name}");
    }
    for (n, database) in [&database, &second].into_iter().enumerate() {
        notes::add(database, &NoteId(format!("m{n}")), "ada", "On engines").await.unwrap();
    }
}

#[tokio::test]
async fn link_to_a_missing_file_becomes_a_private_database() {
    let folder = tempfile::tempdir().unwrap();
    let (link, target) = (folder.path().join("hob.db"), folder.path().join("disk.db"));
    symlink(&target, &link).unwrap();
    open(&link).await;
    assert_eq!(mode(&target), 0o600);
}
