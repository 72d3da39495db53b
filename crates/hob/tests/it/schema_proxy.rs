//! `hob schema proxy` as a program: addresses, metrics, report and exit code.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, Stdio};

use hob_testkit::{Port, RedisServer, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use crate::program::{hob, send, stderr_line};

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

#[test]
fn proxy_refuses_counts_and_reports() {
    let redis = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let schema = folder.path().join("mine.toml");
    std::fs::write(&schema, SCHEMA).unwrap();
    let metrics = SocketAddr::from(([127, 0, 0, 1], Port::reserve().number()));
    let mut command = hob();
    command.args([
        "schema",
        "proxy",
        "--listen",
        "127.0.0.1:0",
        "--mode",
        "enforce",
        "--grace",
        "50ms",
        "--schema",
    ]);
    command.arg(&schema).args(["--upstream", &redis.url(), "--metrics", &metrics.to_string()]);
    let mut running = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut out = BufReader::new(running.0.stdout.take().unwrap());
    let mut url = String::new();
    out.read_line(&mut url).unwrap();

    let mut client = redis::Client::open(url.trim()).unwrap().get_connection().unwrap();
    let refused = redis::cmd("SET").arg("other").arg(1).query::<()>(&mut client).unwrap_err();
    assert!(refused.to_string().contains("undeclared-key"), "{refused}");
    redis::cmd("SET").arg("session:1").arg(1).query::<()>(&mut client).unwrap();
    wait_until("the missing TTL to be found", || {
        let page =
            send(metrics, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        assert_eq!(page.status, 200);
        let missing = "{family=\"mine.session\",violation=\"missing-ttl\",found=\"after\"} 1";
        if page.body.contains(missing) { Ok(()) } else { Err(page.body) }
    });

    kill_process(Pid::from_child(&running.0), Signal::TERM).unwrap();
    let mut report = String::new();
    out.read_to_string(&mut report).unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(4), "{report}");
    assert!(
        report.contains("undeclared: undeclared-key (1, 1 refused), first: set \"other\" from 127.0.0.1:"),
        "{report}"
    );
    assert!(report.contains("mine.session: missing-ttl (1, 0 refused)"), "{report}");
    let mut log = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(log.contains("command breaks the schema") && log.contains("violation=\"missing-ttl\""), "{log}");
}

#[test]
fn proxy_says_why_it_does_not_start() {
    let proxy = |upstream: &str, listen: &str| {
        hob()
            .args(["schema", "proxy", "--with", "hob", "--upstream", upstream, "--listen", listen])
            .output()
            .unwrap()
    };
    let sentinel = stderr_line(&proxy("redis+sentinel://127.0.0.1/m", "127.0.0.1:0"));
    assert!(sentinel.contains("the upstream must be redis://"), "{sentinel}");
    let redis = RedisServer::start();
    let open = stderr_line(&proxy(&redis.url(), "0.0.0.0:0"));
    assert!(open.contains("the upstream needs no password"), "{open}");
}
