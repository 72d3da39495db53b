//! A master, its replica, and a Sentinel that promotes the replica when the master is down.

use std::fs;

use tempfile::TempDir;

use crate::process::port::{Port, PortTaken, with_free_ports};
use crate::redis_server::{RedisOptions, RedisServer};
use crate::wait::{LIMIT, wait_for, wait_until};

/// The name of the master in the configuration of the Sentinel.
const NAME: &str = "mymaster";

/// How many milliseconds a master may be silent before the Sentinel replaces it: many, because on a busy machine any
/// server is silent for seconds, and few while a test waits for the failover.
const PATIENT_MS: &str = "30000";
const IMPATIENT_MS: &str = "1000";

/// Two Redis servers monitored by one Sentinel with a quorum of 1: without split votes, a failover takes a few seconds.
#[derive(Debug)]
pub struct SentinelSet {
    sentinel: RedisServer,
    nodes: [RedisServer; 2],
}

impl SentinelSet {
    pub fn start() -> Self {
        // By default a master waits five seconds for further replicas before it starts the transfer.
        let arguments = ["--repl-diskless-sync-delay", "0"].map(str::to_owned).to_vec();
        let master = RedisServer::start_with(&RedisOptions {
            arguments: arguments.clone(),
            ..RedisOptions::default()
        });
        let address = ["--replicaof".to_owned(), "127.0.0.1".to_owned(), master.port().to_string()];
        let replica = RedisServer::start_with(&RedisOptions {
            arguments: arguments.into_iter().chain(address).collect(),
            ..RedisOptions::default()
        });
        wait_until("the replica to follow the master", || {
            replica
                .info("replication")
                .get::<String>("master_link_status")
                .is_some_and(|status| status == "up")
        });
        let sentinel = RedisServer::start_sentinel(&configuration(&master, &replica));
        let set = Self { sentinel, nodes: [master, replica] };
        wait_until("the Sentinel to see both nodes", || set.sees_replica());
        set
    }

    /// `redis+sentinel://127.0.0.1:PORT/mymaster`.
    pub fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/{NAME}", self.sentinel.port())
    }

    /// The Sentinel itself.
    pub fn sentinel(&self) -> &RedisServer {
        &self.sentinel
    }

    /// The current master according to the Sentinel. After the master went down this is the same node until the failover
    /// is done.
    pub fn master(&self) -> &RedisServer {
        let port = self.master_port();
        let master = self.nodes.iter().find(|node| node.port() == port);
        master
            .unwrap_or_else(|| panic!("the Sentinel reports port {port}, which is not a port of either node"))
    }

    /// The other node.
    pub fn replica(&self) -> &RedisServer {
        let port = self.master_port();
        let replica = self.nodes.iter().find(|node| node.port() != port);
        replica.expect("there are two nodes")
    }

    /// Waits until the Sentinel has made another node than `old` the master, and that node takes writes.
    pub async fn wait_for_failover(&self, old: &RedisServer) {
        self.replace_after(IMPATIENT_MS);
        wait_for("the failover", LIMIT, async || {
            let master = self.master();
            if master.port() == old.port() {
                return Err("the same master".to_owned());
            }
            let role = master.try_command::<redis::InfoDict>(&["INFO", "replication"]);
            let role = role.map_err(|error| error.to_string())?.get::<String>("role");
            if role.as_deref() == Some("master") { Ok(()) } else { Err(format!("{role:?}")) }
        })
        .await;
        self.replace_after(PATIENT_MS);
    }

    fn replace_after(&self, silent_ms: &str) {
        self.sentinel.command::<()>(&["SENTINEL", "SET", NAME, "down-after-milliseconds", silent_ms]);
    }

    fn master_port(&self) -> u16 {
        self.sentinel.command::<(String, u16)>(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).1
    }

    fn sees_replica(&self) -> bool {
        let replicas: Vec<std::collections::HashMap<String, String>> =
            self.sentinel.command(&["SENTINEL", "REPLICAS", NAME]);
        matches!(&replicas[..], [replica] if replica["flags"] == "slave" && replica["master-link-status"] == "ok")
    }
}

/// The configuration of a Sentinel for these two nodes.
fn configuration(master: &RedisServer, replica: &RedisServer) -> String {
    let (master, replica) = (master.port(), replica.port());
    format!(
        "sentinel monitor {NAME} 127.0.0.1 {master} 1\n\
         sentinel down-after-milliseconds {NAME} {PATIENT_MS}\n\
         sentinel failover-timeout {NAME} 3000\n\
         sentinel known-replica {NAME} 127.0.0.1 {replica}\n"
    )
}

/// Shortens the intervals of the Sentinel, so that it takes back a restarted node within seconds, not half a minute. Also
/// raises the limit for TILT mode, which a busy machine would trigger. Redis before 7 refuses the command and is slower.
fn shorten_intervals(sentinel: &RedisServer) {
    let periods = ["INFO-PERIOD", "500", "PUBLISH-PERIOD", "500", "TILT-TRIGGER", "60000"];
    let _ = sentinel.try_command::<()>(&[&["SENTINEL", "DEBUG"][..], &periods].concat());
}

impl RedisServer {
    /// Starts a Sentinel with these lines in its configuration, such as `sentinel monitor …`.
    pub fn start_sentinel(configuration: &str) -> Self {
        let sentinel = with_free_ports(|| launch(configuration));
        shorten_intervals(&sentinel);
        sentinel
    }
}

fn launch(configuration: &str) -> Result<RedisServer, PortTaken> {
    let folder = TempDir::new().unwrap_or_else(|error| panic!("cannot create a folder: {error}"));
    let conf = folder.path().join("sentinel.conf");
    fs::write(&conf, configuration)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", conf.display()));
    let conf = conf.to_str().expect("the path of a temporary folder is UTF-8");
    RedisServer::launch(folder, Port::reserve(), &RedisOptions::default(), &[conf, "--sentinel"])
}
