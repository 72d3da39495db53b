//! Nodes that are suspended (SIGSTOP) and resumed later: the real binary on Redis and PostgreSQL.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hob_pipeline::fake_api::{FakeApi, FakeApiConfig};
use hob_testkit::{LIMIT, Postgres, RedisServer, wait_for, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{Server, post};

const ROOM: &str = "/api/v1/chat/conversations/r/messages";

/// Whether a transaction that has written a message is open, and its node does nothing.
const STALLED: &str = "SELECT count(*) FROM pg_stat_activity a JOIN pg_locks l USING (pid)
     WHERE a.state = 'idle in transaction' AND l.relation = 'chat_event'::regclass AND l.mode = 'RowExclusiveLock'";

fn node(service: &str, redis: &RedisServer, postgres: &Postgres, variables: &[(&str, &str)]) -> Server {
    let (redis, database) = (redis.url(), postgres.url());
    Server::start_with(&["--only", service, "--redis", &redis, "--database", &database], variables)
}

fn message(sender: &str) -> String {
    json!({ "sender_id": sender, "content": "hello" }).to_string()
}

/// Resumes a node and stops its senders, also if the test fails.
struct StopSenders<'a> {
    stop: &'a AtomicBool,
    node: &'a Server,
}

impl Drop for StopSenders<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.node.signal(Signal::CONT);
    }
}

/// A node is suspended inside a transaction, with the locks of a conversation. PostgreSQL ends the transaction after two
/// seconds, and the other node answers its senders. Without this limit they wait for more than ten seconds.
#[test]
fn frozen_node_does_not_stall_the_senders_of_another_node() {
    let (redis, postgres) = (RedisServer::start(), Postgres::start());
    let [frozen, other] =
        [(); 2].map(|()| node("chat", &redis, &postgres, &[("MESSAGE_RATE_LIMIT", "1000000")]));
    let room = json!({ "id": "r", "title": "r", "created_by": "anna", "members": ["bert"] }).to_string();
    assert_eq!(frozen.post("/api/v1/chat/conversations", &room).status, 201);
    assert_eq!(other.post(ROOM, &message("bert")).status, 201);

    let (stop, listen) = (AtomicBool::new(false), frozen.listen);
    std::thread::scope(|scope| {
        let _stop = StopSenders { stop: &stop, node: &frozen };
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let _ = post(listen, ROOM, &message("anna"));
                }
            });
        }
        wait_until("the node to be suspended inside a transaction", || {
            frozen.signal(Signal::STOP);
            let stalled = postgres.psql(STALLED).trim() != "0";
            if !stalled {
                frozen.signal(Signal::CONT);
            }
            stalled
        });
        let begun = Instant::now();
        let sent = other.post(ROOM, &message("bert"));
        let took = begun.elapsed();
        assert_eq!(sent.status, 201, "{}", sent.body);
        assert!(took < Duration::from_secs(8), "{took:?}");
    });
    assert_eq!(frozen.post(ROOM, &message("anna")).status, 201, "the resumed node sends again");
}

/// A node is suspended while its items wait for the quota, until another node has completed the run. When it is resumed, it
/// does not use the quota for items that it no longer holds.
#[tokio::test(flavor = "multi_thread")]
async fn resumed_node_does_not_fetch_items_that_it_no_longer_holds() {
    const ITEMS: u64 = 60;
    /// Calls under way when the node is suspended, and until it finds that its lease has expired.
    const IN_FLIGHT: u64 = 25;
    let (redis, postgres, folder) = (RedisServer::start(), Postgres::start(), TempDir::new().unwrap());
    let api = FakeApiConfig {
        dockets: 2 * ITEMS,
        entries: 0,
        page: 20,
        limits: Vec::new(),
        token: None,
        latency: Duration::ZERO,
    };
    let api = FakeApi::start(api).await.unwrap();
    let variables = [("HOB_PIPELINE_FOLDER", folder.path().to_str().unwrap())];
    let frozen = node("pipeline", &redis, &postgres, &variables);
    start_run(&frozen, &api, "first", 1..=ITEMS);
    wait_for("the first calls", LIMIT, async || api.served() > 0).await;
    frozen.signal(Signal::STOP);
    let mut other = node("pipeline", &redis, &postgres, &variables);
    wait_for_run(&other, "first").await;
    let served = api.served();
    assert!(served <= ITEMS + IN_FLIGHT, "{served} calls for {ITEMS} items");
    other.terminate();

    // The resumed node is the only one now. When it has completed another run, it would have used the quota for old items.
    frozen.signal(Signal::CONT);
    start_run(&frozen, &api, "second", ITEMS + 1..=2 * ITEMS);
    wait_for_run(&frozen, "second").await;
    let served = api.served();
    assert!(served <= 2 * ITEMS + 2 * IN_FLIGHT, "{served} calls for {} items", 2 * ITEMS);
}

/// Starts a run that fetches these items, ten per second.
fn start_run(node: &Server, api: &FakeApi, name: &str, items: std::ops::RangeInclusive<u64>) {
    let keys: Vec<String> = items.map(|key| format!("\"{key}\"")).collect();
    let plan = format!(
        "name = \"{name}\"\nquota = {{ name = \"api\", windows = \"10/1s\" }}\n[source]\nstep = \"docket\"\nlist = [{}]\n\
         [step.docket]\nget = \"{}/dockets/${{key}}/\"\nextract = {{ id = \"$.id\" }}\nsink = \"out\"\n\
         [sink.out]\njsonl = \"{name}.jsonl\"\n",
        keys.join(", "),
        api.url()
    );
    let saved = node.post("/api/v1/pipelines", &json!({ "source": plan }).to_string());
    assert!(saved.status < 300, "{}", saved.body);
    let run = json!({ "id": format!("run-{name}") }).to_string();
    let started = node.post(&format!("/api/v1/pipelines/{name}/runs"), &run);
    assert_eq!(started.status, 201, "{}", started.body);
}

async fn wait_for_run(node: &Server, name: &str) {
    wait_for(format_args!("the run {name} to be completed"), 3 * LIMIT, async || {
        let run = node.get(&format!("/api/v1/pipelines/runs/run-{name}")).body;
        let state = serde_json::from_str::<Value>(&run).unwrap_or_default()["state"].clone();
        if state == "completed" { Ok(()) } else { Err(run) }
    })
    .await;
}
