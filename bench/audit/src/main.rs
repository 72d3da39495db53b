//! The schema audit compared with `redis-cli --bigkeys` and `--memkeys`, on a million mixed keys in a separate server:
//! `cargo run --profile dist -p bench-audit [KEYS]`.
//!
//! Prints a Markdown table: seconds, CPU seconds of the server, and the latency of a client that sends one PING per
//! millisecond during the run.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hob_schema::{Catalog, Layout, Schema};
use hob_schema_audit::{AuditOptions, Pace, audit, connect};
use hob_testkit::RedisServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let keys: u64 = std::env::args().nth(1).and_then(|keys| keys.parse().ok()).unwrap_or(1_000_000);
    let server = RedisServer::start();
    fill(&server, keys);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    let files = ["chat.toml", "uptime.toml", "gateway.toml"];
    let schemas = files.iter().map(|file| Schema::load(&root.join(file))).collect::<Result<Vec<_>, _>>()?;
    let catalog = Catalog::new(schemas, Layout::Plain)?;

    println!("| {keys} keys | seconds | server CPU s | PING p99 | PING max |\n|---|---|---|---|---|");
    for (name, pace) in [("audit", Pace::Full), ("audit at 100,000 keys/s", Pace::KeysPerSecond(100_000))] {
        let watch = Watch::start(&server);
        let store = connect(&server.url().parse()?).await?;
        let report =
            audit(&store, &catalog, AuditOptions { pace, ..AuditOptions::default() }, &mut |_| {}).await?;
        assert_eq!(report.keys, keys, "every key is audited once");
        watch.print(name);
    }
    for flag in ["--bigkeys", "--memkeys"] {
        let watch = Watch::start(&server);
        let port = server.port().to_string();
        let status = Command::new("redis-cli").args(["-p", &port, flag]).stdout(Stdio::null()).status();
        assert!(status.is_ok_and(|status| status.success()), "redis-cli {flag} failed");
        watch.print(&format!("redis-cli {flag}"));
    }
    println!("\nPeak memory of the process: {} MiB", peak_memory_mib());
    Ok(())
}

/// Ten kinds of keys in equal parts, one of them undeclared. The keys are written without the typed constructors
/// of Hob, as another program would write them, because the audit must not depend on them.
fn fill(server: &RedisServer, keys: u64) {
    const MESSAGE: &str =
        r#"{"id":"m","content":"Hello there","senderId":"u","timestamp":"2025-11-16T10:00:00Z"}"#;
    let mut connection = server.connect();
    for block in (0..keys / 10).collect::<Vec<_>>().chunks(1_000) {
        let mut pipe = redis::pipe();
        for n in block {
            let (user, room) = (format!("{n:024x}"), format!("room{n}"));
            let mut send = |arguments: &[&str]| {
                pipe.cmd(arguments[0]).arg(&arguments[1..]).ignore();
            };
            send(&["SET", &format!("user:{user}:online"), "true"]);
            send(&["SADD", &format!("user:{user}:sockets"), &format!("a{n}"), &format!("b{n}")]);
            send(&["SET", &format!("lastseen:{user}"), "2025-11-16T10:00:00Z"]);
            send(&["SET", &format!("socket:s{n}:user"), &user]);
            send(&["SET", &format!("unread:{user}:{room}"), "2"]);
            send(&["SET", &format!("unread:{user}:total"), "2"]);
            let status = format!("monitor:status:m{n}");
            send(&["HSET", &status, "status_code", "200", "latency_ms", "12", "checked_at", "1763287200"]);
            send(&["EXPIRE", &status, "3000"]);
            let recent = format!("messages:{room}:recent");
            send(&["LPUSH", &recent, MESSAGE, MESSAGE, MESSAGE, MESSAGE, MESSAGE]);
            send(&["EXPIRE", &recent, "3600"]);
            let limit = format!("ha:sliding_limit:user:{n}");
            send(&["ZADD", &limit, "1763287200000", "a", "1763287200001", "b"]);
            send(&["EXPIRE", &limit, "900"]);
            send(&["SET", &format!("legacy:{user}"), "a value of an undeclared key"]);
        }
        pipe.query::<()>(&mut connection).expect("cannot write the keys");
    }
}

/// Measures the cost of a run for the server and its other clients.
struct Watch<'s> {
    server: &'s RedisServer,
    started: Instant,
    cpu_s: f64,
    stopped: Arc<AtomicBool>,
    pings: std::thread::JoinHandle<Vec<Duration>>,
}

impl<'s> Watch<'s> {
    fn start(server: &'s RedisServer) -> Watch<'s> {
        let stopped = Arc::new(AtomicBool::new(false));
        let (mut connection, stop) = (server.connect(), Arc::clone(&stopped));
        let pings = std::thread::spawn(move || {
            let mut latencies = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let sent = Instant::now();
                redis::cmd("PING").query::<()>(&mut connection).expect("no reply to PING");
                latencies.push(sent.elapsed());
                std::thread::sleep(Duration::from_millis(1));
            }
            latencies.sort_unstable();
            latencies
        });
        Watch { server, started: Instant::now(), cpu_s: cpu_s(server), stopped, pings }
    }

    fn print(self, name: &str) {
        let seconds = self.started.elapsed().as_secs_f64();
        let cpu_s = cpu_s(self.server) - self.cpu_s;
        self.stopped.store(true, Ordering::Relaxed);
        let latencies = self.pings.join().expect("the ping thread panicked");
        let ms = |share: usize| {
            latencies
                .get(latencies.len() * share / 1_000)
                .or(latencies.last())
                .map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
        };
        println!("| {name} | {seconds:.1} | {cpu_s:.1} | {:.2} ms | {:.2} ms |", ms(990), ms(1_000));
    }
}

fn cpu_s(server: &RedisServer) -> f64 {
    let info = server.info("cpu");
    ["used_cpu_user", "used_cpu_sys"].iter().filter_map(|key| info.get::<f64>(key)).sum()
}

fn peak_memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) / 1024
}
