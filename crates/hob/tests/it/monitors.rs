//! Monitors from a file, and nodes that check them while everything around them dies.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hob_testkit::{LIMIT, TestDatabase, wait_for};
use tempfile::TempDir;

use crate::program::{Server, hob};

/// A file of monitors, and the database that it is for.
struct Desk {
    folder: TempDir,
    database: String,
}

impl Desk {
    fn new(database: &str) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), database: database.to_owned() }
    }

    fn write(&self, yaml: &str) -> PathBuf {
        let path = self.folder.path().join("monitors.yaml");
        std::fs::write(&path, yaml).unwrap();
        path
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let command = &mut hob();
        command
            .current_dir(&self.folder)
            .env("HOB_DATABASE_URL", &self.database)
            .arg("uptime")
            .args(arguments);
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

/// A target that fails on request, and records the last request of each monitor by its path.
#[derive(Clone, Default)]
struct Target {
    broken: Arc<AtomicBool>,
    asked: Arc<Mutex<HashMap<String, Instant>>>,
}

/// So long an answer takes: a node that is killed leaves some checks behind.
const ANSWER: Duration = Duration::from_millis(200);

impl Target {
    fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let this = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let this = this.clone();
                std::thread::spawn(move || this.answer(stream));
            }
        });
        url
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut request = [0; 2048];
        let length = stream.read(&mut request).unwrap_or(0);
        let path = String::from_utf8_lossy(&request[..length]).split(' ').nth(1).map(str::to_owned);
        std::thread::sleep(ANSWER);
        // Who died meanwhile has not checked anything.
        stream.set_nonblocking(true).unwrap();
        if stream.peek(&mut request).is_err_and(|waiting| waiting.kind() == ErrorKind::WouldBlock) {
            self.asked.lock().unwrap().insert(path.unwrap_or_default(), Instant::now());
        }
        let status = if self.broken.load(Ordering::SeqCst) { 503 } else { 200 };
        let _ = write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    }
}

/// `count` monitors of one target, checked every second, each with its own path.
fn file(count: usize, target: &str) -> String {
    let mut yaml = "monitors:\n".to_owned();
    for n in 0..count {
        let _ = writeln!(
            yaml,
            "  m{n}: {{name: M{n}, kind: http, target: '{target}m{n}', interval_s: 1, retries: 0, assertions: ['status == 200']}}"
        );
    }
    yaml
}

#[test]
fn file_is_planned_applied_and_then_changes_nothing() {
    let test_database = TestDatabase::sqlite();
    let desk = Desk::new(&test_database.url());
    let yaml = file(3, "http://shop.example/");
    assert!(desk.apply(&yaml, &["--dry-run"]).contains("3 to add"));
    assert!(desk.apply(&yaml, &[]).contains("3 to add"), "a dry run adds nothing");
    assert!(desk.apply(&yaml, &[]).contains("0 to add, 0 to change, 0 to remove; 3 unchanged"));
    let fewer = file(2, "http://store.example/");
    assert!(desk.apply(&fewer, &[]).contains("2 to change, 0 to remove; 0 unchanged, 1 not in the file"));
    assert!(desk.apply(&fewer, &["--prune"]).contains("- m2  M2"));
    let listed = desk.run(&["list"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains("m1") && listed.contains("http://store.example/") && !listed.contains("m2"),
        "{listed}"
    );
}

/// U7
#[tokio::test(flavor = "multi_thread")]
async fn list_shows_the_state_of_monitors() {
    const ADMIN: &str = "an-admin-token-for-tests";
    let target = Target::default();
    let server = Server::start_with(&["--only", "uptime"], &[("HOB_ADMIN_TOKEN", ADMIN)]);
    let database = server.folder.path().join("hob-data/hob.db").display().to_string();
    let desk = Desk::new(&database);
    desk.apply(&file(2, &target.start()), &[]);
    let store = format!("127.0.0.1:{}", server.store_port.expect("a store"));
    let list = |admin: &str| {
        let command = &mut hob();
        command.current_dir(&desk.folder).args(["uptime", "list"]).env("HOB_DATABASE_URL", &database);
        command.env("HOB_EMBEDDED_LISTEN", &store).env("HOB_ADMIN_TOKEN", admin).output().unwrap()
    };
    let shows = async |state: &str, code: i32| {
        wait_for(format!("both to be {state}"), LIMIT, async || {
            let output = list(ADMIN);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let there = text.lines().filter(|line| line.starts_with(state)).count();
            if there == 2 && output.status.code() == Some(code) { Ok(()) } else { Err((text, output.stderr)) }
        })
        .await;
    };
    shows("UP", 0).await;
    target.broken.store(true, Ordering::SeqCst);
    shows("DOWN", 4).await;

    let stranger = list("not-the-token-that-it-wants");
    let (said, told) = (String::from_utf8_lossy(&stranger.stderr), String::from_utf8_lossy(&stranger.stdout));
    assert!(said.contains("cannot read the states from the store"), "{said}");
    assert!(told.contains("down since"), "{told}");
}

#[test]
fn invalid_file_is_refused_with_positions() {
    let test_database = TestDatabase::sqlite();
    let desk = Desk::new(&test_database.url());
    let file = desk.write("monitors: {a: {name: A, kind: tcp, target: nowhere}}");
    let refused = desk.run(&["apply", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1));
    assert!(said.contains("monitors.yaml") && said.contains("monitors.a.target"), "{said}");
}

mod slow {
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    use hob_testkit::{LIMIT, Postgres, RedisServer, budget, wait_for};
    use serde_json::Value;

    use super::{Desk, Target, file};
    use crate::program::Server;

    const MONITORS: usize = 30;
    const PATIENCE: Duration = Duration::from_secs(120);
    /// A timeout of a second and the grace of five: what a dead node held is claimed by others after that.
    const LEASE: Duration = Duration::from_secs(6);
    /// How much a machine that is busy with other tests may add.
    const SLOWNESS: Duration = Duration::from_secs(10);

    impl Target {
        fn all_asked_since(&self, since: Instant) -> bool {
            let asked = self.asked.lock().unwrap();
            asked.len() >= MONITORS && asked.values().all(|at| *at > since)
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
    #[expect(clippy::print_stdout, reason = "how long it took is worth a look")]
    #[tokio::test(flavor = "multi_thread")]
    async fn nothing_is_lost_or_alerted_twice_when_everything_is_killed() {
        let (redis, postgres, target) = (RedisServer::start(), Postgres::start(), Target::default());
        let url = target.start();
        Desk::new(&postgres.url()).apply(&file(MONITORS, &url), &[]);
        let start =
            || Server::start(&["--redis", &redis.url(), "--database", &postgres.url(), "--only", "uptime"]);
        let mut nodes: Vec<Server> = (0..3).map(|_| start()).collect();
        let up = MONITORS as u64;
        wait_for("all to be up", PATIENCE, async || count(&nodes, "up") == Some(up)).await;

        let begun = Instant::now();
        let (mut round, mut outages, mut longest) = (0, 0, Duration::ZERO);
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
            let hurt = Instant::now();
            wait_for("every monitor to be checked again", LIMIT, async || target.all_asked_since(hurt)).await;
            if round % 4 == 0 {
                longest = longest.max(hurt.elapsed());
            }
            round += 1;
        }
        assert!(outages > 0);
        println!("{round} blows; after a node was killed all were checked again within {longest:?}");
        assert!(longest <= LEASE + Duration::from_secs(1) + SLOWNESS, "{longest:?}");
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
