//! The URL of a heartbeat is a secret: anyone who has it can report that a job works.

use std::fs::File;

use hob_testkit::wait_until;
use serde_json::{Value, json};

use crate::program::Server;

#[test]
fn heartbeat_url_is_not_in_the_log_the_metrics_or_the_audit_log() {
    let server = Server::launch("127.0.0.1:0", |command| {
        let log = command.get_current_dir().unwrap().join("log");
        command.env("HOB_LOG", "debug").stderr(File::create(log).unwrap())
    });
    let monitor = json!({ "name": "Backup", "kind": "heartbeat", "interval_s": 3600 });
    let added = server.post("/api/v1/uptime/monitors", &monitor.to_string());
    assert_eq!(added.status, 201, "{}", added.body);
    let added: Value = serde_json::from_str(&added.body).unwrap();
    let path = added["heartbeat_path"].as_str().unwrap();
    let token = path.rsplit('/').next().unwrap();
    // Also with the mistakes that a job may contain.
    for (path, status) in [
        (path.to_owned(), 200),
        (format!("{path}/start"), 200),
        (format!("{path}/fail"), 200),
        (format!("{path}/done"), 404),
        (format!("{path}/"), 404),
        (format!("/heartbeat/x{token}"), 404),
        (format!("/Heartbeat/{token}"), 404),
        (format!("//heartbeat/{token}"), 404),
        (format!("/hob/heartbeat/{token}"), 404),
    ] {
        assert_eq!(server.get(&path).status, status, "{path}");
        assert_eq!(server.post(&path, "{}").status, status, "{path}");
    }
    let calls = |log: &str, path: &str| {
        log.lines().filter(|line| line.contains("hob::access") && line.contains(path)).count()
    };
    // The log is written by another thread, in order: with the last two calls, all others are in it.
    let log = wait_until("the calls in the log", || {
        let log = server.log();
        if calls(&log, "/hob/heartbeat/…") == 2 { Ok(log) } else { Err(log) }
    });
    assert!(calls(&log, "/heartbeat/…") >= 6, "the calls are in the log");
    let with_token: Vec<&str> = log.lines().filter(|line| line.contains(token)).collect();
    assert!(with_token.is_empty(), "{with_token:#?}");
    let metrics = server.get("/metrics").body;
    assert!(metrics.contains("/heartbeat/{token}") && !metrics.contains(token), "{metrics}");
    let audit = server.get("/api/v1/audit").body;
    assert!(audit.contains("uptime.monitor.add") && !audit.contains(token), "{audit}");
    // The reader of the log may also read the keys.
    let keys = server.get("/keys").body;
    assert!(!keys.contains(token), "{keys}");
}
