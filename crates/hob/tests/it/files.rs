//! The files of a server: only its own user may read them.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use hob_testkit::wait_until;
use rustix::fs::Mode;
use rustix::process::umask;

use crate::program::{Server, hob};

/// The permission bits of a file or folder.
#[track_caller]
fn mode(path: &Path) -> String {
    let found = fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    format!("{:04o}", found.permissions().mode() & 0o7777)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn other_users_cannot_read_the_data_folder() {
    // A child inherits it. With this one, all users may read and write a new file unless the program sets its mode.
    umask(Mode::empty());
    let server = Server::start(&[]);
    let data = server.folder.path().join("hob-data");
    let found = |name: &str| (name.to_owned(), mode(&data.join(name)));
    let expected = |name: &str| (name.to_owned(), "0600".to_owned());
    assert_eq!(mode(&data), "0700");
    for name in ["hob.db", "hob.db-wal", "hob.db-shm"] {
        assert_eq!(found(name), expected(name));
    }
    let copies: [&[&str]; 2] =
        [&["backup", "--to", "hob-data/backup.db"], &["copy", "--to", "hob-data/copy.db"]];
    for arguments in copies {
        let done = hob().current_dir(&server.folder).arg("database").args(arguments).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    for file in fs::read_dir(&data).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert_eq!(found(&name), expected(&name));
    }
    assert!(data.join("backup.db").is_file() && data.join("copy.db").is_file());
}

#[test]
fn files_that_other_users_could_read_are_repaired_with_a_warning() {
    let server = Server::launch("127.0.0.1:0", |command| {
        let folder = command.get_current_dir().unwrap().to_owned();
        let data = folder.join("hob-data");
        fs::create_dir(&data).unwrap();
        set_mode(&data, 0o755);
        for name in ["hob.db", "hob.db-wal"] {
            fs::write(data.join(name), "").unwrap();
            set_mode(&data.join(name), 0o644);
        }
        command.stderr(File::create(folder.join("log")).unwrap())
    });
    let data = server.folder.path().join("hob-data");
    assert_eq!([mode(&data), mode(&data.join("hob.db"))], ["0700", "0600"]);
    assert_eq!([mode(&data.join("hob.db-wal")), mode(&data.join("hob.db-shm"))], ["0600", "0600"]);
    let of_access =
        |line: &&str| line.contains("WARN") && line.contains("permissions of other users on a file");
    // The log is written by another thread.
    let log = wait_until("three warnings in the log", || {
        let log = server.log();
        if log.lines().filter(of_access).count() >= 3 { Ok(log) } else { Err(log) }
    });
    let warnings: Vec<&str> = log.lines().filter(of_access).collect();
    assert_eq!(warnings.len(), 3, "{log}");
    for (path, old, new) in [
        ("path=hob-data ", "0755", "0700"),
        ("path=hob-data/hob.db ", "0644", "0600"),
        ("path=hob-data/hob.db-wal ", "0644", "0600"),
    ] {
        let is_meant = |line: &&&str| line.contains(path) && line.contains(old) && line.contains(new);
        assert_eq!(warnings.iter().filter(is_meant).count(), 1, "{path}: {log}");
    }
}

#[test]
fn folder_of_a_database_elsewhere_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    set_mode(folder.path(), 0o755);
    let database = folder.path().join("shared.db");
    let _server = Server::start(&["--database", database.to_str().unwrap()]);
    assert_eq!([mode(folder.path()), mode(&database)], ["0755", "0600"]);
}
