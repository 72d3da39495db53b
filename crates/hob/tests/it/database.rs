//! `hob database`.

use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};

use hob_testkit::{Postgres, RedisServer, wait_until};

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

const MESSAGES: &str = "/api/v1/chat/conversations/lobby/messages";

/// Sends messages until `stop`, and returns those that were acknowledged.
fn send_messages(server: &Server, stop: &AtomicBool) -> Vec<String> {
    let mut acknowledged = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let content = format!("message {}", acknowledged.len());
        let body = serde_json::json!({ "sender_id": "anna", "content": content }).to_string();
        assert_eq!(server.post(MESSAGES, &body).status, 201);
        acknowledged.push(content);
    }
    acknowledged
}

/// All messages of the conversation, the oldest first.
fn messages(server: &Server) -> Vec<String> {
    let (mut found, mut last) = (Vec::new(), 0);
    loop {
        let page = server.get(&format!("{MESSAGES}?limit=500&after={last}"));
        assert_eq!(page.status, 200, "{}", page.body);
        let page: serde_json::Value = serde_json::from_str(&page.body).unwrap();
        let page = page["messages"].as_array().unwrap();
        let Some(newest) = page.last() else { return found };
        last = newest["sequence"].as_u64().unwrap();
        found.extend(page.iter().map(|message| message["content"].as_str().unwrap().to_owned()));
    }
}

/// Opens a conversation, and backs the database up while messages are sent. Returns the messages that were acknowledged before
/// the backup began, and all of them.
fn back_up_under_traffic(server: &Server, backup: &[&str]) -> (Vec<String>, Vec<String>) {
    let body = r#"{"id":"lobby","title":"Lobby","created_by":"anna"}"#;
    assert_eq!(server.post("/api/v1/chat/conversations", body).status, 201);
    let before = {
        let first = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| send_messages(server, &first));
            wait_until("messages are sent", || messages(server).len() >= 20);
            first.store(true, Ordering::Relaxed);
            sender.join().unwrap()
        })
    };
    let stop = AtomicBool::new(false);
    let during = std::thread::scope(|scope| {
        let sender = scope.spawn(|| send_messages(server, &stop));
        stdout(&database(server, backup));
        stop.store(true, Ordering::Relaxed);
        sender.join().unwrap()
    });
    let all = [before.clone(), during].concat();
    (before, all)
}

/// Everything is destroyed, also Redis. A new deployment starts from the backup, has every message from before it, and goes on.
#[test]
fn destroyed_deployment_is_restored_from_a_backup() {
    let backups = tempfile::tempdir().unwrap();
    let file = backups.path().join("backup.db");
    let (before, all) = {
        let (redis, postgres) = (RedisServer::start(), Postgres::start());
        let arguments = ["--redis", &redis.url(), "--database", &postgres.url()];
        let mut server = Server::start_with(&arguments, &[("MESSAGE_RATE_LIMIT", "1000000")]);
        let (url, to) = (postgres.url(), file.to_str().unwrap().to_owned());
        let kept = back_up_under_traffic(&server, &["backup", "--database", &url, "--to", &to]);
        server.kill();
        kept
    };

    let (redis, postgres) = (RedisServer::start(), Postgres::start());
    let arguments = ["--redis", &redis.url(), "--database", &postgres.url()];
    let restored = hob().args(["database", "restore", "--database", &postgres.url()]).arg(&file).output();
    assert!(stdout(&restored.expect("cannot start hob")).contains("restored "));
    let server = Server::start(&arguments);
    let found = messages(&server);
    assert!(found.len() >= before.len(), "{} of {} messages were restored", found.len(), before.len());
    assert_eq!(found, all[..found.len()], "the restored messages are the first ones, in order");
    let body = r#"{"sender_id":"anna","content":"after the restore"}"#;
    assert_eq!(server.post(MESSAGES, body).status, 201);
    assert_eq!(messages(&server).len(), found.len() + 1);
    // The copies have a search index as well.
    for words in ["%22message%200%22", "after%20the%20restore"] {
        let found = server.get(&format!("/api/v1/chat/users/anna/search?q={words}&limit=1"));
        assert!(found.body.contains("\"content\""), "{words}: {} {}", found.status, found.body);
    }
}

/// Redis has newer data than the backup, so it must not be used with the restored database.
#[test]
fn restored_database_is_not_used_with_the_old_redis() {
    let redis = RedisServer::start();
    let mut server = Server::start(&["--redis", &redis.url()]);
    stdout(&database(&server, &["backup", "--to", "backup.db"]));
    assert!(server.terminate().success());
    let error = stderr_line(&database(&server, &["restore", "backup.db"]));
    assert!(error.contains("hob-data/hob.db already exists; move it away first"), "{error}");
    stdout(&database(&server, &["restore", "backup.db", "--database", "restored.db"]));
    let path = server.folder.path().join("restored.db");
    let start = |redis: &str| {
        let arguments =
            ["serve", "--listen", "127.0.0.1:0", "--database", path.to_str().unwrap(), "--redis", redis];
        hob().current_dir(&server.folder).args(arguments).output().expect("cannot start hob")
    };
    let refused = stderr_line(&start(&redis.url()));
    assert!(refused.contains("this Redis belongs to another database"), "{refused}");
    redis.flush_all();
    let server = Server::start(&["--redis", &redis.url(), "--database", path.to_str().unwrap()]);
    assert_eq!(server.get("/readyz").status, 200);
}

#[test]
fn damaged_backup_is_not_restored() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("backup.db"), "not a database").unwrap();
    let mut command = hob();
    command.current_dir(&folder).args(["database", "restore", "backup.db", "--database", "restored.db"]);
    let error = stderr_line(&command.output().expect("cannot start hob"));
    assert!(error.contains("backup.db is not a backup of Hob"), "{error}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "only the backup is left");
}

#[test]
fn scheduled_backups_replace_the_oldest() {
    let variables = [
        ("HOB_DATABASE_BACKUP_FOLDER", "backups"),
        ("HOB_DATABASE_BACKUP_INTERVAL", "1s"),
        ("HOB_DATABASE_BACKUP_KEEP", "2"),
    ];
    let server = Server::start_with(&[], &variables);
    let folder = server.folder.path().join("backups");
    let listed = |folder: &Path| -> Vec<String> {
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = files
            .map(|file| file.file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".db"))
            .collect();
        names.sort();
        names
    };
    wait_until("the first backup", || listed(&folder).first().cloned());
    let first = listed(&folder)[0].clone();
    wait_until("the first backup to be replaced", || {
        let names = listed(&folder);
        names.len() == 2 && !names.contains(&first)
    });
    let metrics = server.get("/metrics").body;
    assert!(metrics.contains("hob_database_backup_timestamp_seconds"), "{metrics}");
    let newest = folder.join(listed(&folder).last().unwrap());
    let restored = ["restore", newest.to_str().unwrap(), "--database", "restored.db"];
    assert!(stdout(&database(&server, &restored)).contains("restored.db"));
}

#[test]
fn migrations_are_listed_before_they_are_applied() {
    let mut server = Server::start(&[]);
    assert!(server.terminate().success());
    let migrate = |arguments: &[&str]| {
        stdout(&database(&server, &[&["migrate", "--database", "hob-data/hob.db"], arguments].concat()))
    };
    assert_eq!(migrate(&["--dry-run"]), "sqlite:hob-data/hob.db is up to date\n");
    assert_eq!(migrate(&[]), "sqlite:hob-data/hob.db is up to date\n");
    let missing = stderr_line(&database(&server, &["migrate", "--dry-run", "--database", "missing.db"]));
    assert!(missing.contains("there is no database at sqlite:missing.db"), "{missing}");
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
