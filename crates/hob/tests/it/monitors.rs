//! Monitors from a file, and nodes that check them while everything around them dies.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Output;

use hob_testkit::Database;
use tempfile::TempDir;

use crate::program::hob;

/// A file of monitors, and the records that it is for.
struct Desk {
    folder: TempDir,
    records: String,
}

impl Desk {
    fn new(records: &str) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), records: records.to_owned() }
    }

    fn write(&self, yaml: &str) -> PathBuf {
        let path = self.folder.path().join("monitors.yaml");
        std::fs::write(&path, yaml).unwrap();
        path
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let command = &mut hob();
        command.current_dir(&self.folder).env("HOB_RECORDS", &self.records).arg("uptime").args(arguments);
        command.output().unwrap()
    }

    #[track_caller]
    fn apply(&self, yaml: &str, more: &[&str]) -> String {
        let file = self.write(yaml);
        let mut arguments = vec!["apply", file.to_str().unwrap()];
        arguments.extend(more);
        let output = self.run(&arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// `count` monitors of one target, checked every second.
fn file(count: usize, target: &str) -> String {
    let mut yaml = "monitors:\n".to_owned();
    for n in 0..count {
        let _ = writeln!(
            yaml,
            "  m{n}: {{name: M{n}, kind: http, target: '{target}', interval_s: 1, retries: 0, assertions: ['status == 200']}}"
        );
    }
    yaml
}

#[test]
fn a_file_is_planned_applied_and_then_changes_nothing() {
    let database = Database::sqlite();
    let desk = Desk::new(&database.url());
    let yaml = file(3, "http://shop.example/");
    assert!(desk.apply(&yaml, &["--dry-run"]).contains("3 to add"));
    assert!(desk.apply(&yaml, &[]).contains("3 to add"), "a dry run adds nothing");
    assert!(desk.apply(&yaml, &[]).contains("0 to add, 0 to change, 0 to remove; 3 as they should be"));
    let fewer = file(2, "http://store.example/");
    assert!(
        desk.apply(&fewer, &[]).contains("2 to change, 0 to remove; 0 as they should be, 1 not in the file")
    );
    assert!(desk.apply(&fewer, &["--prune"]).contains("- m2  M2"));
    let listed = desk.run(&["list"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains("m1") && listed.contains("http://store.example/") && !listed.contains("m2"),
        "{listed}"
    );
}

#[test]
fn a_file_that_is_wrong_is_refused_with_its_places() {
    let database = Database::sqlite();
    let desk = Desk::new(&database.url());
    let file = desk.write("monitors: {a: {name: A, kind: tcp, target: nowhere}}");
    let refused = desk.run(&["apply", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1));
    assert!(said.contains("monitors.yaml") && said.contains("monitors.a.target"), "{said}");
}

mod slow {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use hob_testkit::{LIMIT, Postgres, RedisServer, budget, wait_for};
    use serde_json::Value;

    use super::{Desk, file};
    use crate::program::Server;

    const MONITORS: usize = 30;
    const PATIENCE: Duration = Duration::from_secs(120);

    /// A target that counts, and breaks when it is told to.
    #[derive(Clone, Default)]
    struct Target {
        broken: Arc<AtomicBool>,
        asked: Arc<AtomicUsize>,
    }

    impl Target {
        fn start(&self) -> String {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/", listener.local_addr().unwrap());
            let this = self.clone();
            std::thread::spawn(move || {
                for mut stream in listener.incoming().flatten() {
                    let _ = stream.read(&mut [0; 2048]);
                    this.asked.fetch_add(1, Ordering::SeqCst);
                    let status = if this.broken.load(Ordering::SeqCst) { 503 } else { 200 };
                    let _ = write!(
                        stream,
                        "HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                    );
                }
            });
            url
        }
    }

    fn json(nodes: &[Server], path: &str) -> Option<Value> {
        nodes.iter().find_map(|node| {
            let answer = node.try_get(path).ok().filter(|answer| answer.status == 200)?;
            serde_json::from_str(&answer.body).ok()
        })
    }

    fn count(nodes: &[Server], state: &str) -> Option<u64> {
        json(nodes, "/api/v1/uptime/summary")?[state].as_u64()
    }

    fn incidents(nodes: &[Server]) -> Vec<Value> {
        let list = json(nodes, "/api/v1/uptime/incidents?limit=500");
        list.and_then(|list| list["items"].as_array().cloned()).unwrap_or_default()
    }

    /// U1 U5 U8 U9: nodes are killed, Redis forgets everything, PostgreSQL restarts, and targets break meanwhile.
    #[tokio::test(flavor = "multi_thread")]
    async fn nothing_is_lost_or_told_twice_while_everything_dies() {
        let (redis, postgres, target) = (RedisServer::start(), Postgres::start(), Target::default());
        let url = target.start();
        Desk::new(&postgres.url()).apply(&file(MONITORS, &url), &[]);
        let start =
            || Server::start(&["--hot", &redis.url(), "--records", &postgres.url(), "--only", "uptime"]);
        let mut nodes: Vec<Server> = (0..3).map(|_| start()).collect();
        let up = MONITORS as u64;
        wait_for("all to be up", PATIENCE, async || count(&nodes, "up") == Some(up)).await;

        let begun = Instant::now();
        let (mut round, mut outages) = (0, 0);
        while begun.elapsed() < budget(Duration::from_secs(25), Duration::from_secs(75)) {
            match round % 4 {
                // Killed, not stopped: what it was checking is left behind.
                0 => nodes[round % 3] = start(),
                1 => {
                    redis.kill();
                    redis.restart();
                }
                2 => {
                    postgres.kill();
                    postgres.restart();
                }
                _ => {
                    outages += 1;
                    target.broken.store(true, Ordering::SeqCst);
                    wait_for("all to be down", PATIENCE, async || count(&nodes, "down") == Some(up)).await;
                    nodes[(round + 1) % 3] = start();
                    target.broken.store(false, Ordering::SeqCst);
                    wait_for("all to be up", PATIENCE, async || count(&nodes, "up") == Some(up)).await;
                }
            }
            let before = target.asked.load(Ordering::SeqCst);
            wait_for("checks to go on", LIMIT, async || {
                target.asked.load(Ordering::SeqCst) >= before + MONITORS
            })
            .await;
            round += 1;
        }
        assert!(outages > 0);
        wait_for("all to be up in the end", PATIENCE, async || count(&nodes, "up") == Some(up)).await;
        let expected = outages * MONITORS;
        wait_for("every incident, once, and over", PATIENCE, async || {
            let all = incidents(&nodes);
            let over = all.iter().filter(|incident| !incident["resolved_at"].is_null()).count();
            if (all.len(), over) == (expected, expected) { Ok(()) } else { Err((all.len(), over, expected)) }
        })
        .await;
    }
}
