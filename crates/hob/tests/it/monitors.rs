//! Monitors from a file, and nodes that check them while nodes, Redis and PostgreSQL are killed.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hob_testkit::{LIMIT, Postgres, wait_for};
use tempfile::TempDir;

use crate::program::{Server, hob};

/// A folder with a monitor file, and the database that it is applied to.
struct MonitorFile {
    folder: TempDir,
    database: String,
}

impl MonitorFile {
    fn new(database: &str) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), database: database.to_owned() }
    }

    /// The database that a server has created.
    fn of(server: &Server) -> Self {
        Self::new(&server.folder.path().join("hob-data/hob.db").display().to_string())
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
    fn apply(&self, yaml: &str, flags: &[&str]) -> String {
        let file = self.write(yaml);
        let mut arguments = vec!["apply", file.to_str().unwrap()];
        arguments.extend(flags);
        let output = self.run(&arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// A target that fails on request, and records the last request of each monitor by its path.
#[derive(Clone, Default)]
struct Target {
    broken: Arc<AtomicBool>,
    checked: Arc<Mutex<HashMap<String, Instant>>>,
}

/// The response time of the target; long enough that a killed node leaves unfinished checks.
const RESPONSE_TIME: Duration = Duration::from_millis(200);

impl Target {
    fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let this = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let this = this.clone();
                std::thread::spawn(move || this.respond(stream));
            }
        });
        url
    }

    fn respond(&self, mut stream: TcpStream) {
        let mut request = [0; 2048];
        let length = stream.read(&mut request).unwrap_or(0);
        let path = String::from_utf8_lossy(&request[..length]).split(' ').nth(1).map(str::to_owned);
        std::thread::sleep(RESPONSE_TIME);
        // If the node was killed in the meantime, the check does not count.
        stream.set_nonblocking(true).unwrap();
        if stream.peek(&mut request).is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            self.checked.lock().unwrap().insert(path.unwrap_or_default(), Instant::now());
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
    let mut server = Server::start(&["--only", "uptime"]);
    let monitor_file = MonitorFile::of(&server);
    server.terminate();
    let yaml = file(3, "http://shop.example/");
    assert!(monitor_file.apply(&yaml, &["--dry-run"]).contains("3 to add"));
    assert!(monitor_file.apply(&yaml, &[]).contains("3 to add"), "a dry run adds nothing");
    assert!(monitor_file.apply(&yaml, &[]).contains("0 to add, 0 to change, 0 to remove; 3 unchanged"));
    let fewer = file(2, "http://store.example/");
    assert!(
        monitor_file.apply(&fewer, &[]).contains("2 to change, 0 to remove; 0 unchanged, 1 not in the file")
    );
    assert!(monitor_file.apply(&fewer, &["--prune"]).contains("- m2  M2"));
    let listed = monitor_file.run(&["list"]);
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
    let monitor_file = MonitorFile::of(&server);
    let database = monitor_file.database.clone();
    monitor_file.apply(&file(2, &target.start()), &[]);
    let store = format!("127.0.0.1:{}", server.store_port.expect("the embedded store does not listen"));
    let list = |admin: &str| {
        let command = &mut hob();
        command.current_dir(&monitor_file.folder).args(["uptime", "list"]).env("HOB_DATABASE_URL", &database);
        command.env("HOB_EMBEDDED_LISTEN", &store).env("HOB_ADMIN_TOKEN", admin).output().unwrap()
    };
    let shows = async |state: &str, code: i32| {
        wait_for(format!("both monitors to be {state}"), LIMIT, async || {
            let output = list(ADMIN);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let count = text.lines().filter(|line| line.starts_with(state)).count();
            if count == 2 && output.status.code() == Some(code) { Ok(()) } else { Err((text, output.stderr)) }
        })
        .await;
    };
    shows("up", 0).await;
    target.broken.store(true, Ordering::SeqCst);
    shows("down", 4).await;

    let denied = list("not-the-token-that-it-wants");
    let (stderr, stdout) = (String::from_utf8_lossy(&denied.stderr), String::from_utf8_lossy(&denied.stdout));
    assert!(stderr.contains("cannot read the states from the store"), "{stderr}");
    assert!(stdout.contains("down since"), "{stdout}");
}

#[test]
fn invalid_file_is_refused_with_positions() {
    let server = Server::start(&["--only", "uptime"]);
    let monitor_file = MonitorFile::of(&server);
    let file = monitor_file.write("monitors: {a: {name: A, kind: tcp, target: nowhere}}");
    let refused = monitor_file.run(&["apply", file.to_str().unwrap()]);
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr.contains("monitors.yaml") && stderr.contains("monitors.a.target"), "{stderr}");
}

#[test]
fn cron_pattern_of_a_heartbeat_is_listed() {
    let server = Server::start(&["--only", "uptime"]);
    let monitor_file = MonitorFile::of(&server);
    monitor_file
        .apply("monitors: {backup: {name: Backup, kind: heartbeat, heartbeat: {cron: '0 3 * * *'}}}", &[]);
    let listed = monitor_file.run(&["list"]);
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(text.contains("0 3 * * *") && !text.contains("60 s"), "{text}");
}

/// A channel that does not exist is a mistake in the file, also in a dry run.
#[test]
fn unknown_channel_is_refused() {
    let server = Server::start(&["--only", "uptime"]);
    let monitor_file = MonitorFile::of(&server);
    let yaml = "monitors:\n  a: {name: A, kind: heartbeat, channels: [Operations]}\n";
    let file = monitor_file.write(yaml);
    for flags in [&[][..], &["--dry-run"]] {
        let refused = monitor_file.run(&[&["apply", file.to_str().unwrap()], flags].concat());
        let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("monitors.a.channels[0]: there is no channel"), "{stderr}");
    }
    let channel = r#"{"name": "Operations", "kind": "webhook", "url": "http://127.0.0.1:1/"}"#;
    assert_eq!(server.post("/api/v1/uptime/channels", channel).status, 201);
    assert!(monitor_file.apply(yaml, &[]).contains("1 to add"));
}

/// Only `hob serve` creates a database, and `hob pipeline run` one for its plan: another command would create it in the
/// wrong folder, or in the wrong database of a server, and report success.
#[test]
fn no_other_command_creates_a_database() {
    let folder = tempfile::tempdir().unwrap();
    let plan = include_str!("../../../../examples/pipelines/courtlistener.toml");
    for (name, text) in [("monitors.yaml", "monitors: {a: {name: A, kind: heartbeat}}"), ("plan.toml", plan)]
    {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let postgres = Postgres::start();
    for arguments in [
        &["uptime", "apply", "monitors.yaml"][..],
        &["uptime", "apply", "monitors.yaml", "--dry-run"],
        &["uptime", "list"],
        &["token", "list"],
        &["token", "create", "x", "--scope", "admin"],
        &["token", "revoke", "x"],
        &["database", "backup", "--to", "copy.db"],
        &["database", "copy", "--to", "copy.db"],
        &["doctor"],
        &["pipeline", "status", "plan.toml"],
        &["pipeline", "pause", "plan.toml"],
        &["pipeline", "resume", "plan.toml"],
        &["pipeline", "failed", "plan.toml"],
        &["pipeline", "replay", "plan.toml"],
    ] {
        let output = hob().current_dir(&folder).args(arguments).output().unwrap();
        assert_ne!(output.status.code(), Some(0), "{arguments:?}");
        let mut found: Vec<_> =
            folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        found.sort();
        assert_eq!(found, ["monitors.yaml", "plan.toml"], "{arguments:?}");
        if arguments[0] != "pipeline" && arguments[0] != "database" {
            let refused = hob()
                .current_dir(&folder)
                .env("HOB_DATABASE_URL", postgres.url())
                .args(arguments)
                .output()
                .unwrap();
            assert_ne!(refused.status.code(), Some(0), "{arguments:?} on PostgreSQL");
        }
    }
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(postgres.psql(tables).trim(), "0");
}

mod slow {
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    use hob_testkit::{LIMIT, Postgres, RedisServer, budget, wait_for};
    use serde_json::Value;

    use super::{MonitorFile, Target, file};
    use crate::program::Server;

    const MONITORS: usize = 30;
    const TIMEOUT: Duration = Duration::from_secs(120);
    /// A timeout of one second plus a grace period of five: after that, other nodes claim the checks of a dead node.
    const LEASE: Duration = Duration::from_secs(6);
    /// Added for a machine that is busy with other tests.
    const BUSY_MARGIN: Duration = Duration::from_secs(10);

    impl Target {
        fn all_checked_since(&self, since: Instant) -> bool {
            let checked = self.checked.lock().unwrap();
            checked.len() >= MONITORS && checked.values().all(|at| *at > since)
        }
    }

    fn json(nodes: &[Server], path: &str) -> Option<Value> {
        nodes.iter().find_map(|node| {
            let response = node.try_get(path).ok().filter(|response| response.status == 200)?;
            serde_json::from_str(&response.body).ok()
        })
    }

    fn count(nodes: &[Server], state: &str) -> Option<u64> {
        json(nodes, "/api/v1/uptime/summary")?[state].as_u64()
    }

    fn incidents(nodes: &[Server]) -> Vec<Value> {
        let list = json(nodes, "/api/v1/uptime/incidents?limit=500");
        list.and_then(|list| list["items"].as_array().cloned()).unwrap_or_default()
    }

    /// U1 U5 U8 U9: nodes are killed, Redis loses its data, PostgreSQL restarts, and targets fail in the meantime.
    #[expect(clippy::print_stdout, reason = "a long test prints its slowest recovery")]
    #[tokio::test(flavor = "multi_thread")]
    async fn nothing_is_lost_or_alerted_twice_when_everything_is_killed() {
        let (redis, postgres, target) = (RedisServer::start(), Postgres::start(), Target::default());
        let url = target.start();
        let start =
            || Server::start(&["--redis", &redis.url(), "--database", &postgres.url(), "--only", "uptime"]);
        let mut nodes: Vec<Server> = (0..3).map(|_| start()).collect();
        MonitorFile::new(&postgres.url()).apply(&file(MONITORS, &url), &[]);
        let up = MONITORS as u64;
        wait_for("all monitors to be up", TIMEOUT, async || count(&nodes, "up") == Some(up)).await;

        let started = Instant::now();
        let (mut round, mut outages, mut longest) = (0, 0, Duration::ZERO);
        while started.elapsed() < budget(Duration::from_secs(25), Duration::from_secs(75)) {
            match round % 4 {
                // Killed, not stopped: its checks stay unfinished.
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
                    wait_for("all monitors to be down", TIMEOUT, async || count(&nodes, "down") == Some(up))
                        .await;
                    nodes[(round + 1) % 3] = start();
                    target.broken.store(false, Ordering::SeqCst);
                    wait_for("all monitors to be up", TIMEOUT, async || count(&nodes, "up") == Some(up))
                        .await;
                }
            }
            let injected = Instant::now();
            wait_for("every monitor to be checked again", LIMIT, async || target.all_checked_since(injected))
                .await;
            if round % 4 == 0 {
                longest = longest.max(injected.elapsed());
            }
            round += 1;
        }
        assert!(outages > 0);
        println!(
            "{round} faults; after a node was killed, all monitors were checked again within {longest:?}"
        );
        assert!(longest <= LEASE + Duration::from_secs(1) + BUSY_MARGIN, "{longest:?}");
        wait_for("all monitors to be up at the end", TIMEOUT, async || count(&nodes, "up") == Some(up)).await;
        let expected = outages * MONITORS;
        wait_for("every incident to be recorded once and resolved", TIMEOUT, async || {
            let all = incidents(&nodes);
            let resolved = all.iter().filter(|incident| !incident["resolved_at"].is_null()).count();
            if (all.len(), resolved) == (expected, expected) {
                Ok(())
            } else {
                Err((all.len(), resolved, expected))
            }
        })
        .await;
    }
}
