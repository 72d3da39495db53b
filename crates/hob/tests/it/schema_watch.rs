//! `hob schema audit --sample`, `--history` and `hob schema watch` as programs.

use std::io::Read as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Output, Stdio};

use hob_testkit::{Port, RedisServer, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use crate::program::{hob, send};

const SCHEMA: &str = "[schema]\nname = \"mine\"\nversion = 1\n[ids]\nuser = {}\n[key.session]\npattern = \"session:<user>\"\n\
                      type = \"string\"\nttl = { max = \"1h\" }\n";

/// Ends the program even if a test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn declared(folder: &Path) -> String {
    let path = folder.join("mine.toml");
    std::fs::write(&path, SCHEMA).unwrap();
    path.to_str().unwrap().to_owned()
}

fn schema(arguments: &[&str]) -> Output {
    hob().arg("schema").args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn sample_is_estimated_and_the_seed_repeats_it() {
    let (redis, folder) = (RedisServer::start(), tempfile::tempdir().unwrap());
    let file = declared(folder.path());
    let mut pipe = redis::pipe();
    for id in 0..600 {
        pipe.set(format!("session:{id}"), 1);
    }
    pipe.exec(&mut redis.connect()).unwrap();
    let audit = |more: &[&str]| {
        let url = redis.url();
        let arguments = [&["audit", "--schema", &file, &url][..], more].concat();
        schema(&arguments)
    };
    let sampled = audit(&["--sample", "10%", "--sample-seed", "7"]);
    assert_eq!(sampled.status.code(), Some(4), "{}", text(&sampled));
    let shown = text(&sampled);
    assert!(shown.contains("and 10 % of the others (seed 7)"), "{shown}");
    assert!(shown.contains("about 600 in the family (95 %: "), "{shown}");
    let json = |more: &[&str]| -> serde_json::Value {
        let output = audit(&[&["--sample", "200", "--format", "json"][..], more].concat());
        serde_json::from_str(&text(&output)).unwrap()
    };
    let first = json(&[]);
    let seed = first["sampling"]["seed"].to_string();
    let again = json(&["--sample-seed", &seed]);
    assert_eq!(
        (&again["sampling"], &again["violations"][0]["keys"]),
        (&first["sampling"], &first["violations"][0]["keys"])
    );
    for wrong in [&["--sample", "0%"][..], &["--sample-seed", "1"], &["--sample", "some"]] {
        assert_eq!(audit(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn history_shows_what_has_grown() {
    let (redis, folder) = (RedisServer::start(), tempfile::tempdir().unwrap());
    let file = declared(folder.path());
    let history = folder.path().join("history.jsonl");
    let history = history.to_str().unwrap();
    let entry = |days: u64, keys: u64| {
        let unix_s = hob_units::unix_ms() / 1_000 - days * 86_400;
        format!(
            "{{\"unix_s\":{unix_s},\"keys\":{keys},\"families\":{{\"mine.session\":{{\"keys\":{keys},\"bytes\":{}}}}},\
             \"undeclared\":{{}},\"findings\":{{}}}}\n",
            keys * 50
        )
    };
    std::fs::write(history, [entry(30, 1), entry(8, 2), entry(1, 9)].concat()).unwrap();
    for id in 0..12 {
        redis.command::<()>(&["SET", &format!("session:{id}"), "1"]);
    }
    let output = schema(&["audit", "--schema", &file, "--history", history, &redis.url()]);
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(4), "{shown}");
    // Since the last audit, and since the one that is nearest to a week old.
    for expected in
        ["(1d before)", "(8d before)", "+3 ", "+10 ", "mine.session missing-ttl: 0 keys before, 12 now"]
    {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert!(!shown.contains("(30d before)"), "{shown}");
    assert_eq!(std::fs::read_to_string(history).unwrap().lines().count(), 4);
    let output = schema(&["history", history]);
    assert!(output.status.success() && text(&output).contains("(8d before)"), "{}", text(&output));
    let json: serde_json::Value =
        serde_json::from_str(&text(&schema(&["history", history, "--format", "json"]))).unwrap();
    assert_eq!(json[1]["grown"][0]["before"]["keys"], 2);
    assert_eq!(schema(&["history", "/nowhere/h.jsonl"]).status.code(), Some(1));
}

#[test]
fn watch_serves_metrics_and_logs_each_kind_of_finding_once() {
    let (redis, folder) = (RedisServer::start(), tempfile::tempdir().unwrap());
    redis.command::<()>(&["CONFIG", "SET", "notify-keyspace-events", "AE"]);
    redis.command::<()>(&["SET", "session:1", "1"]);
    let metrics = SocketAddr::from(([127, 0, 0, 1], Port::reserve().number()));
    let mut command = hob();
    command.args([
        "schema",
        "watch",
        "--every",
        "200ms",
        "--grace",
        "50ms",
        "--schema",
        &declared(folder.path()),
    ]);
    command.args([&redis.url(), "--metrics", &metrics.to_string()]);
    let mut running = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let shows = |line: &str| {
        wait_until(line, || {
            let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            let page = send(metrics, request).map_err(|error| error.to_string())?;
            if page.body.contains(line) { Ok(()) } else { Err(page.body) }
        });
    };
    shows("hob_schema_watch_findings{family=\"mine.session\",violation=\"missing-ttl\"} 1");
    shows("hob_schema_watch_notifying_servers 1");
    redis.command::<()>(&["SET", "session:2", "1"]);
    redis.command::<()>(&["SET", "session:3", "1"]);
    shows("hob_schema_watch_findings{family=\"mine.session\",violation=\"missing-ttl\"} 3");
    redis.command::<()>(&["LPUSH", "session:4", "1"]);
    shows("hob_schema_watch_violations_total{family=\"mine.session\",violation=\"wrong-type\"} 1");

    kill_process(Pid::from_child(&running.0), Signal::TERM).unwrap();
    assert!(running.0.wait().unwrap().success());
    let (mut report, mut log) = (String::new(), String::new());
    running.0.stdout.take().unwrap().read_to_string(&mut report).unwrap();
    running.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(report.contains("error[missing-ttl] mine.session: 3 keys"), "{report}");
    let logged = |violation: &str| {
        log.lines().filter(|line| line.contains("new schema finding") && line.contains(violation)).count()
    };
    assert_eq!((logged("missing-ttl"), logged("wrong-type")), (1, 1), "{log}");
}
