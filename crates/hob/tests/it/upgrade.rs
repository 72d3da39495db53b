//! Nodes of the last release are replaced by nodes of this version, one after the other, under traffic on all five systems.
//!
//! `cargo xtask upgrade` builds the last release and runs this test.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hob_pipeline::fake_api::{FakeApi, FakeApiConfig};
use hob_testkit::{Postgres, RedisServer, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{Response, Server, program, send};

/// Set by `cargo xtask upgrade`.
const LAST_RELEASE: &str = "HOB_LAST_RELEASE";
const ITEMS: u64 = 250;
const MESSAGES: &str = "/api/v1/chat/conversations/lobby/messages";

/// What all nodes share.
struct Deployment {
    redis: RedisServer,
    postgres: Postgres,
    /// The output of pipelines.
    folder: TempDir,
    target: SocketAddr,
}

impl Deployment {
    fn start() -> Deployment {
        Deployment {
            redis: RedisServer::start(),
            postgres: Postgres::start(),
            folder: tempfile::tempdir().unwrap(),
            target: start_target(),
        }
    }

    fn node(&self, path: &Path) -> Server {
        Server::launch_as(program(path), "127.0.0.1:0", |command| {
            command.args(["--redis", &self.redis.url(), "--database", &self.postgres.url()]);
            command.env("HOB_PIPELINE_FOLDER", self.folder.path()).env("HOB_LOG", "warn");
            command.env("HOB_GATEWAY_UPSTREAM", format!("[\"http://{}\"]", self.target));
            command.env("HOB_GATEWAY_COUNT_LOOPBACK", "true").env("MESSAGE_RATE_LIMIT", "1000000")
        })
    }
}

/// An HTTP server that answers every request with 200.
fn start_target() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = |mut stream: TcpStream| {
        let (mut buffer, mut filled) = ([0; 8192], 0);
        while let Ok(read @ 1..) = stream.read(&mut buffer[filled..]) {
            filled += read;
            if buffer[..filled].ends_with(b"\r\n\r\n") {
                filled = 0;
                if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
                    return;
                }
            }
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// The nodes that get requests, as a load balancer has them.
struct Balancer {
    nodes: Mutex<Vec<(SocketAddr, SocketAddr)>>,
    next: AtomicU64,
    stop: AtomicBool,
    messages: AtomicU64,
    forwarded: AtomicU64,
    completed_runs: AtomicU64,
    other_runs: AtomicU64,
}

impl Balancer {
    fn new(nodes: &[&Server]) -> Balancer {
        Balancer {
            nodes: Mutex::new(nodes.iter().map(|node| addresses(node)).collect()),
            next: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            messages: AtomicU64::new(0),
            forwarded: AtomicU64::new(0),
            completed_runs: AtomicU64::new(0),
            other_runs: AtomicU64::new(0),
        }
    }

    /// The API and the gateway of the next node.
    fn next(&self) -> (SocketAddr, SocketAddr) {
        let nodes = self.nodes.lock().unwrap();
        let at = self.next.fetch_add(1, Ordering::Relaxed) as usize % nodes.len();
        nodes[at]
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Option<Response> {
        let (listen, body) = (self.next().0, body.to_string());
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {listen}\r\nConnection: close");
        let head = format!("{head}\r\nContent-Type: application/json\r\nContent-Length: {}", body.len());
        send(listen, &format!("{head}\r\n\r\n{body}")).ok().filter(|response| response.status != 0)
    }

    /// Repeats a request that may be repeated, until a node answers.
    fn json(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut found = None;
        wait_until(format!("{method} {path} to be answered"), || {
            let answer = self.call(method, path, body).filter(|answer| answer.status < 300);
            found = answer.and_then(|answer| serde_json::from_str(&answer.body).ok());
            found.is_some()
        });
        found.unwrap()
    }

    /// A planned stop: the load balancer stops sending requests to the node before the node stops.
    fn replace(&self, old: &mut Server, new: impl FnOnce() -> Server) -> Server {
        self.nodes.lock().unwrap().retain(|node| *node != addresses(old));
        assert!(old.terminate().success(), "a node did not stop in time");
        let new = new();
        self.nodes.lock().unwrap().push(addresses(&new));
        new
    }

    /// Waits until every system has made progress.
    fn wait_for_traffic(&self) {
        for (what, counter, more) in [
            ("messages", &self.messages, 20),
            ("forwarded requests", &self.forwarded, 50),
            ("completed load runs", &self.completed_runs, 1),
        ] {
            let goal = counter.load(Ordering::SeqCst) + more;
            wait_until(format!("{more} more {what}"), || counter.load(Ordering::SeqCst) >= goal);
        }
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// The contents of the acknowledged messages.
    fn send_messages(&self) -> Vec<String> {
        let mut acknowledged = Vec::new();
        for number in 0.. {
            if self.is_stopping() {
                break;
            }
            let content = format!("message {number}");
            let sent = self.call("POST", MESSAGES, &json!({ "sender_id": "anna", "content": content }));
            if sent.is_some_and(|sent| sent.status == 201) {
                acknowledged.push(content);
                self.messages.fetch_add(1, Ordering::SeqCst);
            }
        }
        acknowledged
    }

    /// Requests through the gateways. Every one must be answered: the load balancer drains a node before it stops.
    fn forward(&self) {
        while !self.is_stopping() {
            let gateway = self.next().1;
            let request = format!("GET /x HTTP/1.1\r\nHost: {gateway}\r\nConnection: close\r\n\r\n");
            let answer = send(gateway, &request);
            let still_there = self.nodes.lock().unwrap().iter().any(|node| node.1 == gateway);
            match answer {
                Ok(answer) if answer.status == 200 => drop(self.forwarded.fetch_add(1, Ordering::SeqCst)),
                Ok(answer) => assert!(!still_there, "{}: {}", answer.head, answer.body),
                Err(error) => assert!(!still_there, "{error}"),
            }
        }
    }

    /// One load run after the other.
    fn run_load(&self, plan: &str) {
        while !self.is_stopping() {
            let run = self.json("POST", &format!("/api/v1/load/plans/{plan}/runs"), &json!({}));
            let path = format!("/api/v1/load/runs/{}", run["id"].as_str().unwrap());
            let mut state = String::new();
            wait_until("the end of a load run", || {
                state = self.json("GET", &path, &json!({}))["state"].as_str().unwrap().to_owned();
                ["completed", "failed", "cancelled", "lost"].contains(&state.as_str())
            });
            let counter = if state == "completed" { &self.completed_runs } else { &self.other_runs };
            counter.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn addresses(node: &Server) -> (SocketAddr, SocketAddr) {
    (node.listen, node.gateway.expect("the gateway does not listen"))
}

/// All messages of the conversation, the oldest first.
fn messages(balancer: &Balancer) -> Vec<String> {
    let (mut found, mut last) = (Vec::new(), 0);
    loop {
        let page = balancer.json("GET", &format!("{MESSAGES}?limit=500&after={last}"), &json!({}));
        let page = page["messages"].as_array().unwrap();
        let Some(newest) = page.last() else { return found };
        last = newest["sequence"].as_u64().unwrap();
        found.extend(page.iter().map(|message| message["content"].as_str().unwrap().to_owned()));
    }
}

fn pipeline_plan(api: &str) -> String {
    format!(
        "name = \"dockets\"\nquota = {{ name = \"api\", windows = \"10/1s\" }}\n[source]\nstep = \"docket\"\n\
         [source.pages]\nurl = \"{api}/dockets/\"\nitems = \"$.results[*]\"\nkey = \"$.id\"\nnext = \"$.next\"\n\
         [step.docket]\nget = \"{api}/dockets/${{key}}/\"\nextract = {{ id = \"$.id\" }}\nsink = \"out\"\n\
         [sink.out]\njsonl = \"out.jsonl\"\n"
    )
}

/// Creates what the traffic needs; returns the id of the load plan.
fn prepare(balancer: &Balancer, deployment: &Deployment, api: &FakeApi) -> String {
    let target = deployment.target;
    let room = json!({ "id": "lobby", "title": "Lobby", "created_by": "anna" });
    balancer.json("POST", "/api/v1/chat/conversations", &room);
    for number in 0..3 {
        let monitor = json!({ "name": "Target", "kind": "http", "target": format!("http://{target}/"), "interval_s": 1 });
        balancer.json("PUT", &format!("/api/v1/uptime/monitors/m{number}"), &monitor);
    }
    let plan = format!(
        "name = \"Site\"\ntarget = \"http://{target}\"\n[[scenario]]\nname = \"s\"\nload = {{ rate = 10, for = \"1s\" }}\n\
         [[scenario.step]]\nname = \"home\"\nrequest = \"GET /\"\n"
    );
    let plan = balancer.json("POST", "/api/v1/load/plans", &json!({ "source": plan }));
    balancer.json("POST", "/api/v1/pipelines", &json!({ "source": pipeline_plan(&api.url()) }));
    balancer.json("POST", "/api/v1/pipelines/dockets/runs", &json!({ "id": "dockets-1" }));
    plan["id"].to_string()
}

/// Ignored by default: it needs a build of the last release, which takes several minutes. `cargo xtask upgrade` makes one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs the last release: cargo xtask upgrade"]
async fn nodes_are_replaced_without_loss() {
    let old = PathBuf::from(std::env::var_os(LAST_RELEASE).expect("run `cargo xtask upgrade`"));
    let new = PathBuf::from(env!("CARGO_BIN_EXE_hob"));
    let limits = vec![(100_000, Duration::from_secs(60))];
    let config = FakeApiConfig {
        dockets: ITEMS,
        entries: 0,
        page: 50,
        limits,
        token: None,
        latency: Duration::from_millis(20),
    };
    let api = FakeApi::start(config).await.unwrap();
    tokio::task::block_in_place(|| replace_nodes(&old, &new, &api));
}

fn replace_nodes(old: &Path, new: &Path, api: &FakeApi) {
    let deployment = Deployment::start();
    let (mut first, mut second) = (deployment.node(old), deployment.node(old));
    let balancer = Balancer::new(&[&first, &second]);
    let plan = prepare(&balancer, &deployment, api);
    let (acknowledged, replaced) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| balancer.send_messages());
        scope.spawn(|| balancer.forward());
        scope.spawn(|| balancer.run_load(&plan));
        let stop = StopOnDrop(&balancer);
        balancer.wait_for_traffic();
        // The new node migrates the database, while the other one still runs.
        let third = balancer.replace(&mut first, || deployment.node(new));
        balancer.wait_for_traffic();
        let fourth = balancer.replace(&mut second, || deployment.node(new));
        balancer.wait_for_traffic();
        drop(stop);
        (sender.join().unwrap(), [third, fourth])
    });

    let found = messages(&balancer);
    let distinct: BTreeSet<&String> = found.iter().collect();
    assert_eq!(distinct.len(), found.len(), "a message was sent twice");
    let kept: Vec<&String> = found.iter().filter(|message| acknowledged.contains(message)).collect();
    assert_eq!(kept, acknowledged.iter().collect::<Vec<_>>(), "all acknowledged messages, in order");

    let others = balancer.other_runs.load(Ordering::SeqCst);
    assert!(others <= 2, "{others} load runs did not complete; only one per stopped node may be interrupted");
    for number in 0..3 {
        let monitor = format!("/api/v1/uptime/monitors/m{number}");
        let before = balancer.json("GET", &monitor, &json!({}))["checked_at"].clone();
        wait_until("the new nodes to check a monitor", || {
            let now = balancer.json("GET", &monitor, &json!({}));
            now["state"] == "up" && now["checked_at"] != before
        });
    }
    let incidents = balancer.json("GET", "/api/v1/uptime/incidents", &json!({}));
    assert_eq!(incidents["items"], json!([]), "no monitor was down");

    wait_until("the pipeline to complete", || {
        balancer.json("GET", "/api/v1/pipelines/runs/dockets-1", &json!({}))["state"] == "completed"
    });
    let run = balancer.json("GET", "/api/v1/pipelines/runs/dockets-1", &json!({}));
    assert_eq!(run["outputs"][0]["rows"], json!(ITEMS), "{run}");
    let file = deployment.folder.path().join(run["outputs"][0]["file"].as_str().unwrap());
    let written = std::fs::read_to_string(file).unwrap();
    let lines: BTreeSet<&str> = written.lines().collect();
    assert_eq!((lines.len(), written.lines().count()), (ITEMS as usize, ITEMS as usize), "no item twice");

    let forwarded = balancer.forwarded.load(Ordering::SeqCst);
    wait_until("the gateway to have counted all requests", || {
        let summary = balancer.json("GET", "/api/v1/gateway/summary", &json!({}));
        summary["total"].as_u64().unwrap() >= forwarded
    });
    drop(replaced);
    going_back_is_refused(&deployment, old);
}

fn going_back_is_refused(deployment: &Deployment, old: &Path) {
    let mut command = program(old);
    command.current_dir(&deployment.folder).args(["serve", "--listen", "127.0.0.1:0"]);
    command.args(["--redis", &deployment.redis.url(), "--database", &deployment.postgres.url()]);
    let refused = command.output().unwrap();
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{message}");
    assert!(message.contains("the database is newer than this program"), "{message}");
}

/// Stops the traffic, also if a check fails.
struct StopOnDrop<'a>(&'a Balancer);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::SeqCst);
    }
}
