//! A store that refuses calls makes the systems degraded, until it accepts them again.

use std::collections::BTreeMap;

use hob_testkit::{LIMIT, RedisServer, wait_for};
use redis::{Client, Commands, Connection};
use serde_json::Value;

use crate::program::Server;

const MIB: usize = 1 << 20;
const KEYS: usize = 64;
/// Less than [`KEYS`] keys of one MiB, and more than a server with demo data needs.
const LIMIT_MIB: usize = 40;
/// The systems that write to the store all the time.
const BUSY: [&str; 4] = ["gateway", "uptime", "chat", "hob"];

const DEGRADED: &str = "store refuses the calls of this system";
const RECOVERED: &str = "store accepts the calls of this system again";

fn junk(number: usize) -> String {
    format!("junk:{number}")
}

fn fill(store: &mut Connection) {
    for number in 0..KEYS {
        store.set::<_, _, ()>(junk(number), vec![b'x'; MIB]).unwrap();
    }
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(LIMIT_MIB * MIB).exec(store).unwrap();
    let error = store.set::<_, _, ()>("more", "x").unwrap_err();
    assert_eq!(error.code(), Some("OOM"), "{error}");
}

fn free(store: &mut Connection) {
    let keys: Vec<String> = (0..KEYS).map(junk).collect();
    store.del::<_, ()>(keys).unwrap();
    store.set::<_, _, ()>("more", "x").expect("the store has memory again");
    store.del::<_, ()>("more").unwrap();
}

/// The systems that `/readyz` names, with their faults, and its status.
fn readiness(server: &Server) -> (String, BTreeMap<String, String>) {
    let response = server.get("/readyz");
    assert_eq!(response.status, 200, "degraded is not dead: {}", response.body);
    let body: Value = serde_json::from_str(&response.body).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let systems = body["degraded"].as_array().unwrap();
    let systems = systems.iter().map(|one| (text(&one["system"]), text(&one["fault"]))).collect();
    (text(&body["status"]), systems)
}

/// The sum of a metric over all labels that contain `label`.
pub(crate) fn metric(server: &Server, name: &str, label: &str) -> f64 {
    let page = server.get("/metrics").body;
    let lines = page.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(label));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

/// The number of log lines with this message for each system.
fn changes(log: &str, message: &str) -> BTreeMap<String, usize> {
    let mut changes = BTreeMap::new();
    for line in log.lines().filter(|line| line.contains(message)) {
        let system = line.split("system=").nth(1).and_then(|rest| rest.split_whitespace().next());
        let system = system.unwrap_or_else(|| panic!("no system in {line}")).trim_matches('"');
        *changes.entry(system.to_owned()).or_default() += 1;
    }
    changes
}

async fn full_store_is_reported_until_it_is_freed(server: &Server, store: &mut Connection) {
    assert_eq!(readiness(server), ("ready".to_owned(), BTreeMap::new()));
    assert_eq!(metric(server, "hob_store_degraded", "uptime"), 0.0);
    fill(store);
    wait_for("every busy system to be degraded", LIMIT, async || {
        let (status, systems) = readiness(server);
        let is_full = |name: &str| systems.get(name).is_some_and(|fault| fault == "out_of_memory");
        if status == "degraded" && BUSY.into_iter().all(is_full) { Ok(()) } else { Err((status, systems)) }
    })
    .await;
    // One line for each system, however often the store refuses its calls.
    let errors = metric(server, "hob_store_operation_errors_total", "kind");
    assert!(errors > 0.0);
    wait_for("many more refused calls", LIMIT, async || {
        metric(server, "hob_store_operation_errors_total", "kind") > errors + 50.0
    })
    .await;
    let overview = server.get("/").body;
    for title in ["Gateway", "Uptime", "Chat", "This node"] {
        let problem = format!("{title} is degraded: Redis is out of memory. Delete keys");
        assert!(overview.contains(&problem), "{problem} is missing in {overview}");
    }
    assert!(!overview.contains("All systems operational"), "{overview}");
    let health = server.get("/health").body;
    assert!(health.contains("uptime: Redis is out of memory, "), "{health}");
    assert_eq!(metric(server, "hob_store_degraded", r#"system="uptime""#), 1.0);
    free(store);
    wait_for("the systems to recover", LIMIT, async || {
        let (status, systems) = readiness(server);
        if status == "ready" && systems.is_empty() { Ok(()) } else { Err((status, systems)) }
    })
    .await;
    assert_eq!(metric(server, "hob_store_degraded", "system"), 0.0);
    let overview = server.get("/").body;
    assert!(!overview.contains("is degraded"), "{overview}");
    let log = wait_for("the log to have a line for each recovery", LIMIT, async || {
        let log = server.log();
        let (degraded, recovered) = (changes(&log, DEGRADED), changes(&log, RECOVERED));
        if degraded.keys().eq(recovered.keys()) { Ok(log) } else { Err(log) }
    })
    .await;
    for message in [DEGRADED, RECOVERED] {
        let changes = changes(&log, message);
        assert!(BUSY.iter().all(|name| changes.contains_key(*name)), "{changes:?}");
        assert!(changes.values().all(|count| *count == 1), "{changes:?}\n{log}");
    }
    let others: Vec<&str> =
        log.lines().filter(|line| line.contains("OOM") && !line.contains(DEGRADED)).collect();
    assert!(
        others.iter().all(|line| line.contains("failed to publish outbox events, retrying"))
            && others.len() < 2,
        "{others:#?}"
    );
}

#[tokio::test]
async fn full_embedded_store_is_reported_until_it_is_freed() {
    let server = Server::start_logged(&["--demo"]);
    let port = server.store_port.expect("the embedded store does not listen");
    let mut store = Client::open(("127.0.0.1", port)).unwrap().get_connection().unwrap();
    full_store_is_reported_until_it_is_freed(&server, &mut store).await;
}

#[tokio::test]
async fn full_redis_is_reported_until_it_is_freed() {
    let redis = RedisServer::start();
    let server = Server::start_logged(&["--demo", "--redis", &redis.url()]);
    full_store_is_reported_until_it_is_freed(&server, &mut redis.connect()).await;
}
