//! A node that runs load, and a client of its live WebSocket.

use std::net::TcpStream;
use std::time::Instant;

use hob_testkit::{LIMIT, wait_until};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::stream::MaybeTlsStream;
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

use super::{QUEUE, parse, status_key};
use crate::contract::{Deployment, Settings, Store, Target, Ttl};

/// A node, and the server that it tests.
pub(super) struct Lab {
    pub(super) deployment: Deployment,
    pub(super) target: Target,
}

impl Lab {
    /// A node that runs load. A machine that stalls loses no runner.
    pub(super) fn start(store: Store) -> Self {
        Self::start_with(store, "[load]\nlease = \"1m\"\n")
    }

    /// A node on which runs stay in the queue.
    pub(super) fn start_idle(store: Store) -> Self {
        Self::start_with(store, "[load]\nmax_concurrent_runs = 0\n")
    }

    pub(super) fn start_with(store: Store, config: &str) -> Self {
        let settings = Settings::new("load").config(config).lasting_database().log_to_file();
        Self { deployment: Deployment::start_with(store, settings), target: Target::start() }
    }

    /// Saves a plan with this load and two accounts, and returns its id.
    #[track_caller]
    pub(super) fn plan(&self, load: &str) -> u64 {
        let saved = self.deployment.server.post("/api/v1/load/plans", &self.body(load).to_string());
        assert_eq!(saved.status, 201, "{}", saved.body);
        parse(&saved.body)["id"].as_u64().unwrap()
    }

    pub(super) fn body(&self, load: &str) -> Value {
        let source = format!(
            "name = \"TestWithGradle\"\ntarget = \"{}\"\n\
             [run.smoke]\ngroups = [\"read\"]\nusers = [{{ login = \"ann\" }}, {{ login = \"bob\" }}]\n\
             [[scenario]]\nname = \"visitors\"\nload = {load}\nthink = \"50ms\"\n\
             [[scenario.step]]\nname = \"home\"\ngroup = \"read\"\nrequest = \"GET /?who=${{login}}\"\n",
            self.target.url.trim_end_matches('/')
        );
        json!({ "source": source })
    }

    /// Queues a run and returns its id.
    #[track_caller]
    pub(super) fn queue(&self, plan: u64, body: &Value) -> String {
        let queued =
            self.deployment.server.post(&format!("/api/v1/load/plans/{plan}/runs"), &body.to_string());
        assert_eq!(queued.status, 202, "{}", queued.body);
        parse(&queued.body)["id"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(super) fn cancel(&self, run: &str) {
        let cancelled = self.deployment.server.post(&format!("/api/v1/load/runs/{run}/cancel"), "{}");
        assert_eq!(cancelled.status, 200, "{}", cancelled.body);
    }

    /// The bytes of a string.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        self.deployment.run(&["GET", key])
    }

    /// Waits until the public status of a run has this value, and returns its bytes.
    #[track_caller]
    pub(super) fn wait_for_status(&self, run: &str, status: &str) -> String {
        wait_until(format!("{run} to be {status}"), || {
            let found = self.text(&status_key(run)).ok_or_else(|| "no key".to_owned())?;
            if parse(&found)["status"] == status { Ok(found) } else { Err(found) }
        })
    }

    pub(super) fn queued(&self) -> Vec<String> {
        self.deployment.run(&["LRANGE", QUEUE, "0", "-1"])
    }

    /// Waits until the public queue has exactly these entries.
    #[track_caller]
    pub(super) fn wait_for_queue(&self, entries: &[String]) {
        wait_until("the queue", || {
            let found = self.queued();
            if found == entries { Ok(()) } else { Err(found) }
        });
    }

    #[track_caller]
    pub(super) fn wait_for_log(&self, message: &str, detail: &str) {
        wait_until(format!("{message:?} with {detail:?} in the log"), || {
            let log = self.deployment.server.log();
            let found = log.lines().any(|line| line.contains(message) && line.contains(detail));
            if found { Ok(()) } else { Err(log) }
        });
    }

    /// The seconds until a key expires.
    #[track_caller]
    pub(super) fn seconds_left(&self, key: &str) -> u64 {
        match self.deployment.ttl(key) {
            Ttl::Seconds(left) => left,
            other => panic!("{key}: {other:?}"),
        }
    }
}

/// A client of the live WebSocket.
pub(super) struct Watcher(WebSocket<MaybeTlsStream<TcpStream>>);

impl Watcher {
    #[track_caller]
    pub(super) fn connect(lab: &Lab, run: &str) -> Self {
        let url = format!("ws://{}/api/v1/load/runs/{run}/live", lab.deployment.server.listen);
        let (socket, _) = tungstenite::connect(url).expect("the live connection was refused");
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream.set_read_timeout(Some(LIMIT)).unwrap();
        }
        Self(socket)
    }

    /// The data of the next status with this state.
    #[track_caller]
    pub(super) fn wait_for_state(&mut self, state: &str) -> Value {
        let started = Instant::now();
        loop {
            assert!(started.elapsed() < LIMIT, "no status {state}");
            let message = self.0.read().unwrap_or_else(|error| panic!("no status {state}: {error}"));
            let Message::Text(text) = message else { continue };
            let mut frame = parse(&text);
            if frame["kind"] == "status" && frame["data"]["state"] == state {
                return frame["data"].take();
            }
        }
    }
}
