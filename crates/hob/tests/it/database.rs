//! `hob database`.

use std::process::Output;

use hob_testkit::Postgres;

use crate::program::{Server, complaint, hob};

fn database(server: &Server, arguments: &[&str]) -> Output {
    hob().current_dir(&server.folder).arg("database").args(arguments).output().expect("the binary starts")
}

#[track_caller]
fn said(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn database_in_use_can_be_backed_up() {
    let server = Server::start(&[]);
    assert!(said(&database(&server, &["backup", "--to", "copy.db"])).contains("copy.db"));
    let again = complaint(&database(&server, &["backup", "--to", "copy.db"]));
    assert!(again.contains("copy.db"), "an existing file is not written over: {again}");
    let path = server.folder.path().join("copy.db");
    let restored = Server::start(&["--database", path.to_str().unwrap()]);
    assert_eq!(restored.get("/readyz").status, 200);
}

#[test]
fn database_is_copied_from_sqlite_to_postgres() {
    let server = Server::start(&[]);
    let postgres = Postgres::start();
    assert!(said(&database(&server, &["copy", "--to", &postgres.url()])).starts_with("copied "));
    let again = complaint(&database(&server, &["copy", "--to", &postgres.url()]));
    assert!(again.contains("cannot copy"), "a database that holds something is not written over: {again}");
    let moved = Server::start(&["--database", &postgres.url()]);
    assert_eq!(moved.get("/readyz").status, 200);
}

#[test]
fn backup_does_not_create_a_missing_database() {
    let server = Server::start(&["--demo"]);
    let text = complaint(&database(&server, &["backup", "--to", "copy.db"]));
    assert!(text.starts_with("hob: no database at hob-data/hob.db: "), "{text}");
    assert!(!server.folder.path().join("hob-data").exists());
}
