//! Databases of earlier versions, in `tests/databases`.

use std::path::{Path, PathBuf};
use std::process::Output;

use hob_testkit::Postgres;
use serde_json::Value;

use crate::program::{Server, hob};

const VERSIONS: [&str; 2] = ["a7c81e28", "60953d61"];

fn file(version: &str, end: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/databases").join(format!("{version}.{end}"))
}

/// The lines that `hob database migrate` prints.
fn migrate(database: &str, flags: &[&str]) -> Vec<String> {
    let mut command = hob();
    let output: Output =
        command.args(["database", "migrate", "--database", database]).args(flags).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Applies the pending migrations, and reads what the earlier version has written.
fn assert_migrated(database: &str) {
    let pending = migrate(database, &["--dry-run"]);
    assert!(pending.iter().any(|line| line.contains("chat 0004_webhooks")), "{pending:?}");
    assert_eq!(migrate(database, &["--dry-run"]), pending, "a dry run applies nothing");
    migrate(database, &[]);
    assert!(!migrate(database, &["--dry-run"]).iter().any(|line| line.contains("pending: ")));

    let server = Server::start(&["--database", database]);
    let get = |path: &str| -> Value {
        let answer = server.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    };
    assert_eq!(get("/api/v1/uptime/monitors/shop")["name"], "Shop");
    assert_eq!(get("/api/v1/uptime/incidents/i1")["message"], "connection refused");
    let messages = get("/api/v1/chat/conversations/lobby/messages");
    assert_eq!(messages["messages"][0]["content"], "from an earlier version", "{messages}");
    assert_eq!(get("/api/v1/load/plans/1")["run_types"][0]["name"], "default");
    assert_eq!(get("/api/v1/pipelines")[0]["name"], "dockets");
    let message = r#"{"sender_id":"anna","content":"from this version"}"#;
    let sent = server.post("/api/v1/chat/conversations/lobby/messages", message);
    assert_eq!(sent.status, 201, "{}", sent.body);
    let run = server.post("/api/v1/load/plans/1/runs", "{}");
    assert_eq!(run.status, 202, "{}", run.body);
}

#[test]
fn earlier_database_is_migrated() {
    for version in VERSIONS {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("hob.db");
        std::fs::copy(file(version, "db"), &database).unwrap();
        assert_migrated(&database.display().to_string());
    }
}

#[test]
fn earlier_database_is_migrated_on_postgres() {
    for version in VERSIONS {
        let postgres = Postgres::start();
        postgres.psql(&std::fs::read_to_string(file(version, "sql")).unwrap());
        assert_migrated(&postgres.url());
    }
}

/// The database has a migration that this version does not know.
#[test]
fn going_back_is_refused() {
    let postgres = Postgres::start();
    drop(Server::start(&["--database", &postgres.url()]));
    postgres.psql("INSERT INTO hob_migrations VALUES ('chat', 9999, '9999_future', 'x', 1)");
    let mut command = hob();
    let refused =
        command.args(["serve", "--listen", "127.0.0.1:0", "--database", &postgres.url()]).output().unwrap();
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{message}");
    assert!(message.contains("the database is newer than this program"), "{message}");
    assert!(message.contains("chat 9999_future"), "{message}");
}
