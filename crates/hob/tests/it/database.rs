//! `hob database`.

use std::process::Output;

use hob_testkit::Postgres;

use crate::program::{Server, hob, stderr_line};

fn database(server: &Server, arguments: &[&str]) -> Output {
    hob().current_dir(&server.folder).arg("database").args(arguments).output().expect("cannot start hob")
}

#[track_caller]
fn stdout(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn database_in_use_can_be_backed_up() {
    let server = Server::start(&[]);
    assert!(stdout(&database(&server, &["backup", "--to", "copy.db"])).contains("copy.db"));
    let error = stderr_line(&database(&server, &["backup", "--to", "copy.db"]));
    assert!(error.contains("copy.db"), "an existing file was overwritten: {error}");
    let path = server.folder.path().join("copy.db");
    let restored = Server::start(&["--database", path.to_str().unwrap()]);
    assert_eq!(restored.get("/readyz").status, 200);
}

#[test]
fn database_is_copied_from_sqlite_to_postgres() {
    let server = Server::start(&[]);
    let postgres = Postgres::start();
    assert!(stdout(&database(&server, &["copy", "--to", &postgres.url()])).starts_with("copied "));
    let error = stderr_line(&database(&server, &["copy", "--to", &postgres.url()]));
    assert!(error.contains("cannot copy"), "a database with data was overwritten: {error}");
    let moved = Server::start(&["--database", &postgres.url()]);
    assert_eq!(moved.get("/readyz").status, 200);
}

#[test]
fn backup_does_not_create_a_missing_database() {
    let server = Server::start(&["--demo"]);
    let text = stderr_line(&database(&server, &["backup", "--to", "copy.db"]));
    assert!(
        text.starts_with("hob: there is no database at sqlite:hob-data/hob.db; `hob serve` creates it"),
        "{text}"
    );
    assert!(!server.folder.path().join("hob-data").exists());
}
