//! `hob load`, and load-test runs on nodes that are killed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Output;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::program::{hob, stderr_line};

/// An HTTP server that responds to every request with 200 and counts the requests.
struct Target {
    address: SocketAddr,
    served: Arc<AtomicU64>,
    paths: Arc<Mutex<BTreeSet<String>>>,
}

impl Target {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let served = Arc::new(AtomicU64::new(0));
        let paths = Arc::new(Mutex::new(BTreeSet::new()));
        let (counter, seen) = (Arc::clone(&served), Arc::clone(&paths));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, counter, seen) = (stream.unwrap(), Arc::clone(&counter), Arc::clone(&seen));
                thread::spawn(move || serve(stream, &counter, &seen));
            }
        });
        Self { address, served, paths }
    }

    fn served(&self) -> u64 {
        self.served.load(Ordering::SeqCst)
    }

    fn plan(&self, load: &str, threshold: &str) -> String {
        format!(
            "name = \"Site\"\ntarget = \"http://{}\"\nthresholds = [\"{threshold}\"]\n[[scenario]]\nname = \"s\"\n\
             load = {load}\n[[scenario.step]]\nname = \"home\"\nrequest = \"GET /\"\nexpect = {{ contains = \"ok\" }}\n",
            self.address
        )
    }
}

/// Serves requests without a body, one at a time, until the client disconnects.
fn serve(mut stream: TcpStream, counter: &AtomicU64, paths: &Mutex<BTreeSet<String>>) {
    let (mut buffer, mut filled) = ([0; 4096], 0);
    loop {
        match stream.read(&mut buffer[filled..]) {
            Ok(read) if read > 0 => filled += read,
            _ => return,
        }
        if buffer[..filled].ends_with(b"\r\n\r\n") {
            let path = String::from_utf8_lossy(&buffer).split(' ').nth(1).unwrap_or_default().to_owned();
            paths.lock().unwrap().insert(path);
            filled = 0;
            counter.fetch_add(1, Ordering::SeqCst);
            if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    }
}

fn load(arguments: &[&str]) -> Output {
    hob().arg("load").args(arguments).output().unwrap()
}

#[test]
fn plan_is_run_and_reported_in_every_form() {
    let (target, folder) = (Target::start(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (plan, html, json, junit) = (path("plan.toml"), path("r.html"), path("r.json"), path("r.xml"));
    fs::write(&plan, target.plan("{ rate = 40, for = \"1s\" }", "error_rate < 1%")).unwrap();
    let output = load(&["run", &plan, "--out", &html, "--json", &json, "--junit", &junit]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("40 requests, 40.0/s") && text.contains("✓ error_rate < 1%"), "{text}");
    assert_eq!(target.served(), 40);
    let report: serde_json::Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!((&report["requests"], &report["failed"]), (&40.into(), &0.into()));
    assert!(fs::read_to_string(&html).unwrap().contains("<svg"));
    assert!(fs::read_to_string(&junit).unwrap().contains("tests=\"1\" failures=\"0\""));
}

#[test]
fn users_come_from_a_file_beside_the_plan() {
    let (target, folder) = (Target::start(), tempfile::tempdir().unwrap());
    let plan = folder.path().join("plan.toml");
    let source = target.plan("{ rate = 4, for = \"1s\" }", "error_rate < 1%");
    let source = source.replace("[[scenario]]", "[run.all]\ncsv_file = \"users.csv\"\n[[scenario]]");
    fs::write(&plan, source.replace("GET /", "GET /${login}")).unwrap();
    let error = stderr_line(&load(&["run", plan.to_str().unwrap()]));
    assert!(error.contains("plan.toml:5:1: run.all.csv_file: ") && error.contains("users.csv"), "{error}");
    fs::write(folder.path().join("users.csv"), "login\nann\nbob\n").unwrap();
    let output = load(&["run", plan.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let paths = target.paths.lock().unwrap().clone();
    assert_eq!(paths, ["/ann", "/bob"].map(str::to_owned).into());
}

#[test]
fn exit_code_reports_a_missed_threshold() {
    let (target, folder) = (Target::start(), tempfile::tempdir().unwrap());
    let plan = folder.path().join("plan.toml");
    fs::write(&plan, target.plan("{ users = 2, for = \"1s\" }", "rate > 10000000/s")).unwrap();
    let output = load(&["run", plan.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(4), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("✗ rate > 10000000/s"));
}

/// Nothing listens on this port.
const DEAD: &str = "127.0.0.1:1";

#[test]
fn dead_target_fails_without_a_threshold() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    let dead = Target { address: DEAD.parse().unwrap(), served: Arc::default(), paths: Arc::default() };
    fs::write(&plan, dead.plan("{ users = 5, for = \"1s\" }", "p95 < 50ms")).unwrap();
    for arguments in [&["run", plan.to_str().unwrap()][..], &["quick", "http://127.0.0.1:1/", "-d", "1s"]] {
        let output = load(arguments);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(4), "{text}");
        assert!(text.contains("✗ error_rate <= 5% (default) (measured 100.00 %)"), "{text}");
        assert!(text.contains(" 0 B out") && text.contains("backed off"), "{text}");
        assert!(!text.contains('✓'), "{text}");
    }
}

#[test]
fn check_with_dry_run_sends_each_request_once() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    let source = Target::start().plan("{ rate = 100, for = \"1h\" }", "p99 < 1s");
    fs::write(&plan, &source).unwrap();
    let output = load(&["check", "--dry-run", plan.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains(" ms: passed") && text.contains("GET http://127.0.0.1:"), "{text}");
    // Nothing listens on this port.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let target = source.lines().find(|line| line.starts_with("target")).unwrap();
    fs::write(&plan, source.replace(target, &format!("target = \"http://{closed}\""))).unwrap();
    let output = load(&["check", "--dry-run", plan.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(4), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn check_reports_a_host_that_a_run_may_not_test() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    let source = Target::start().plan("{ rate = 1, for = \"1s\" }", "p99 < 1s");
    fs::write(&plan, source.replace("http://127.0.0.1:", "http://staging.example:")).unwrap();
    let plan = plan.to_str().unwrap();
    let output = load(&["check", plan]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("A run would be refused: staging.example may not be tested"), "{text}");
    let output = load(&["check", plan, "--allow", "staging.example"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn yaml_plan_is_refused_with_the_supported_formats() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["plan.yaml", "plan.YML"] {
        let plan = folder.path().join(name);
        fs::write(&plan, "name: Shop\n").unwrap();
        let error = stderr_line(&load(&["check", plan.to_str().unwrap()]));
        assert!(
            error.contains("a plan is TOML (`.toml`) or JSON (`.json`); YAML is not supported"),
            "{error}"
        );
    }
}

/// The certificate of a certificate authority.
const CA: &str = "-----BEGIN CERTIFICATE-----
MIIBeTCCAR+gAwIBAgIUOUpqwgcvhex0dle/bmJg/YzT9yEwCgYIKoZIzj0EAwIw
EjEQMA4GA1UEAwwHVGVzdCBDQTAeFw0yNjExMTYxNjI4MzhaFw0zNjExMTMxNjI4
MzhaMBIxEDAOBgNVBAMMB1Rlc3QgQ0EwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AARs75BXh9JYFL1tawNji8QHfMx/Zl88B3SusrIRNykGJf3tVn+NJmXFLNbs4z4S
HPdh58I2wyAtEX91oqFE1iN1o1MwUTAdBgNVHQ4EFgQUvADU7u55iG3IrBRl+ZcZ
T6+nnD8wHwYDVR0jBBgwFoAUvADU7u55iG3IrBRl+ZcZT6+nnD8wDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEAgcVRkm16cV6jkFeAK45zYsZGLtu/
S+Y388exFeWQ+joCICQdWcgvIQzTUCbpH+kHC8EeaU64xz2J0RhUJwkedbX7
-----END CERTIFICATE-----
";

#[test]
fn ca_is_a_file_beside_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    let source = Target::start().plan("{ rate = 1, for = \"1s\" }", "p99 < 1s");
    fs::write(&plan, source.replace("[[scenario]]", "[tls]\nca = \"ca.pem\"\n[[scenario]]")).unwrap();
    let error = stderr_line(&load(&["check", plan.to_str().unwrap()]));
    assert!(error.contains("plan.toml:5:1: tls.ca: ") && error.contains("ca.pem: No such file"), "{error}");
    fs::write(folder.path().join("ca.pem"), "none").unwrap();
    let error = stderr_line(&load(&["check", plan.to_str().unwrap()]));
    assert!(error.contains("tls.ca: no certificate found; give a certificate as PEM"), "{error}");
    fs::write(folder.path().join("ca.pem"), CA).unwrap();
    let output = load(&["check", plan.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn url_is_requested_repeatedly() {
    let target = Target::start();
    let output = load(&["quick", &format!("http://{}/", target.address), "-c", "4", "-d", "4s"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("p99.9") && text.contains('█') && target.served() > 10, "{text}");
}

#[test]
fn invalid_plan_is_reported_in_one_line_with_its_position() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    fs::write(&plan, Target::start().plan("{ rate = 1, for = \"soon\" }", "p99 < 1s")).unwrap();
    let error = stderr_line(&load(&["check", plan.to_str().unwrap()]));
    assert!(error.contains("plan.toml:6:20: scenario[0].load.for: "), "{error}");
    let error = stderr_line(&load(&["quick", "http://example.com/", "-d", "1s"]));
    assert!(error.contains("example.com may not be tested"), "{error}");
}

/// After any kill, runs end, and no request is counted twice.
mod slow {
    use std::time::{Duration, Instant};

    use hob_testkit::{LIMIT, Postgres, RedisServer, budget, wait_for};
    use serde_json::{Value, json};

    use super::*;
    use crate::program::Server;

    /// A run must end within this time after a kill, with the default settings: a lease of five seconds, and three seconds
    /// to gather runners.
    const END_WITHIN: Duration = Duration::from_secs(15);
    /// Added on a machine that also compiles; the hundred rounds are for an otherwise idle machine.
    const SLACK: Duration = Duration::from_secs(30);
    /// Longer than a lease.
    const OUTAGE: Duration = Duration::from_secs(6);

    struct Cluster {
        redis: RedisServer,
        postgres: Postgres,
        nodes: Vec<Server>,
    }

    impl Cluster {
        fn start() -> Self {
            let mut cluster =
                Self { redis: RedisServer::start(), postgres: Postgres::start(), nodes: Vec::new() };
            cluster.nodes = vec![cluster.node(), cluster.node()];
            cluster
        }

        fn node(&self) -> Server {
            let (store, database) = (self.redis.url(), self.postgres.url());
            Server::start(&["--redis", &store, "--database", &database, "--only", "load"])
        }

        /// Sends a request to the first node that responds.
        fn send(&self, request: &str, body: &Value) -> Option<Value> {
            self.nodes.iter().find_map(|node| send(node.listen, request, body))
        }

        fn state(&self, run: &str) -> Option<String> {
            let run = self.send(&format!("GET /api/v1/load/runs/{run}"), &Value::Null)?;
            Some(run["state"].as_str()?.to_owned())
        }
    }

    fn send(address: SocketAddr, request: &str, body: &Value) -> Option<Value> {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(LIMIT)).ok()?;
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let head = format!("host: {address}\r\nconnection: close\r\ncontent-type: application/json");
        write!(stream, "{request} HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
            .ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        let is_valid = head.starts_with("HTTP/1.1 2");
        serde_json::from_str(body).ok().filter(|_| is_valid)
    }

    fn is_final(state: &str) -> bool {
        ["completed", "failed", "cancelled", "lost"].contains(&state)
    }

    /// Kills nodes or Redis, depending on the round, and then restores the full cluster.
    async fn inject_fault(cluster: &mut Cluster, round: u32) {
        match round % 8 {
            0 | 4 => drop(cluster.nodes.remove(0)),
            1 | 5 => drop(cluster.nodes.remove(1)),
            3 | 7 => cluster.nodes.clear(),
            fault => {
                cluster.redis.kill();
                if fault == 2 {
                    tokio::time::sleep(OUTAGE).await;
                }
                cluster.redis.restart();
            }
        }
        while cluster.nodes.len() < 2 {
            let node = cluster.node();
            cluster.nodes.push(node);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn runs_end_after_any_kill() {
        let target = Target::start();
        let mut cluster = Cluster::start();
        let plan = json!({ "source": target.plan("{ rate = 100, for = \"2s\" }", "error_rate < 1%") });
        let plan =
            cluster.send("POST /api/v1/load/plans", &plan).expect("the plan was not created")["id"].clone();
        let limit = budget(END_WITHIN + SLACK, END_WITHIN);
        let mut slowest = Duration::ZERO;
        for round in 0..budget(4, 100) {
            let before = target.served();
            let queue = format!("POST /api/v1/load/plans/{plan}/runs");
            let run = wait_for("a run to be queued", LIMIT, async || {
                cluster.send(&queue, &json!({ "runners": 2 }))
            })
            .await;
            let run = run["id"].as_str().unwrap().to_owned();
            tokio::time::sleep(Duration::from_millis(kill_delay_ms(round))).await;
            let killed = Instant::now();
            inject_fault(&mut cluster, round).await;
            let state = wait_for(format!("{run} to end in round {round}"), LIMIT * 2, async || {
                cluster.state(&run).filter(|state| is_final(state))
            })
            .await;
            let took = killed.elapsed();
            assert!(took < limit, "{run} took {took:?} to be {state} in round {round}");
            slowest = slowest.max(took);
            let report = cluster.send(&format!("GET /api/v1/load/runs/{run}/report"), &Value::Null);
            let counted = report.map_or(0, |report| report["requests"].as_u64().unwrap());
            let served = target.served() - before;
            assert!(
                counted <= served,
                "{counted} requests were counted, but {served} were served, in round {round}"
            );
            assert!(state != "completed" || counted == 200, "{counted} of 200 requests in a complete run");
        }
        let rows = cluster
            .postgres
            .psql("SELECT count(*) - count(DISTINCT (run_id, runner, epoch, step, second)) FROM load_second");
        assert_eq!(rows, "0");
        #[expect(clippy::print_stdout, reason = "a long test prints its slowest run")]
        {
            println!("the slowest run ended {slowest:?} after the kill");
        }
    }

    /// A delay between the queueing of a run and shortly before its end.
    fn kill_delay_ms(round: u32) -> u64 {
        u64::from(round.wrapping_mul(2_654_435_761) % 3500)
    }
}
