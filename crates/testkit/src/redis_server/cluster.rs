//! A Redis Cluster of three masters.
//!
//! Creating a cluster the usual way takes seconds: nodes meet by gossip, and a master waits two seconds before it serves.
//! Here every node reads its peers from a prepared `nodes.conf`, and starts as the replica of a master that does not
//! exist: a replica does not wait, and takes over the slots with a command.

use std::fmt::Write as _;
use std::fs;

use tempfile::TempDir;

use crate::process::port::{Port, PortTaken, with_free_ports};
use crate::redis_server::{RedisOptions, RedisServer};
use crate::wait::{LIMIT, wait_for, wait_until};

const MASTERS: usize = 3;
const SLOTS: u16 = 16_384;

/// The first slot of each master, and one past the last.
const BOUNDS: [u16; MASTERS + 1] = [0, 5461, 10_923, SLOTS];

const BUS_OFFSET: u16 = 10_000;

/// Three masters that share the slots evenly.
#[derive(Debug)]
pub struct RedisCluster {
    masters: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts a cluster with default options.
    pub fn start() -> Self {
        Self::start_with(&RedisOptions::default())
    }

    /// Starts a cluster with these options for all masters.
    pub fn start_with(options: &RedisOptions) -> Self {
        let cluster = with_free_ports(|| Self::launch(options));
        cluster.take_over();
        wait_until("the cluster to serve all slots", || cluster.check_complete());
        cluster
    }

    /// `redis+cluster://127.0.0.1:PORT,127.0.0.1:PORT,127.0.0.1:PORT`, with the password if there is one.
    pub fn url(&self) -> String {
        let addresses = self.masters.iter().map(|master| format!("127.0.0.1:{}", master.port()));
        let addresses = addresses.collect::<Vec<_>>().join(",");
        format!("redis+cluster://{}{addresses}", self.masters[0].credentials())
    }

    /// The masters.
    pub fn masters(&self) -> &[RedisServer] {
        &self.masters
    }

    /// The master that holds `key`.
    pub fn master_of(&self, key: &str) -> &RedisServer {
        let slot: u16 = self.masters[0].command(&["CLUSTER", "KEYSLOT", key]);
        let master = BOUNDS.iter().rposition(|first| *first <= slot).expect("slots begin at 0");
        &self.masters[master]
    }

    /// Deletes all data of all masters.
    pub fn flush_all(&self) {
        self.masters.iter().for_each(RedisServer::flush_all);
    }

    /// Waits until every master sees all slots served, such as after a restart.
    pub async fn wait_until_whole(&self) {
        wait_for("the cluster to serve all slots", LIMIT, async || self.check_complete()).await;
    }

    fn check_complete(&self) -> Result<(), String> {
        self.masters.iter().try_for_each(|master| {
            let info: String = master.try_command(&["CLUSTER", "INFO"]).map_err(|error| error.to_string())?;
            let expected = ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:3"];
            if expected.iter().all(|line| info.contains(line)) {
                Ok(())
            } else {
                Err(format!("port {}: {info}", master.port()))
            }
        })
    }

    fn launch(options: &RedisOptions) -> Result<Self, PortTaken> {
        let ports: Vec<Port> = (0..MASTERS).map(|_| Port::reserve()).collect();
        let numbers: Vec<u16> = ports.iter().map(Port::number).collect();
        let mut options = options.clone();
        let cluster = ["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"];
        options.arguments.extend(cluster.map(str::to_owned));
        let launched = ports.into_iter().enumerate().map(|(myself, port)| {
            let folder = TempDir::new().unwrap_or_else(|error| panic!("cannot create a folder: {error}"));
            let path = folder.path().join("nodes.conf");
            fs::write(&path, nodes_conf(myself, &numbers))
                .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
            RedisServer::launch(folder, port, &options, &[])
        });
        Ok(Self { masters: launched.collect::<Result<_, _>>()? })
    }

    /// Promotes the nodes to masters. Until all nodes know each other, slots without a known owner must not count as a
    /// failure: a master that was in the failed state waits two seconds.
    fn take_over(&self) {
        for (index, node) in self.masters.iter().enumerate() {
            wait_until("a node to serve as a replica", || info_has(node, "cluster_state:ok"));
            node.command::<()>(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
            node.command::<()>(&["CLUSTER", "FORGET", &ghost_id(index)]);
        }
        for node in &self.masters {
            wait_until("a node to know every slot's master", || info_has(node, "cluster_slots_ok:16384"));
        }
        for node in &self.masters {
            node.command::<()>(&["CONFIG", "SET", "cluster-require-full-coverage", "yes"]);
        }
    }
}

fn info_has(node: &RedisServer, line: &str) -> bool {
    node.command::<String>(&["CLUSTER", "INFO"]).contains(line)
}

/// The initial `nodes.conf` of the node `myself`.
fn nodes_conf(myself: usize, ports: &[u16]) -> String {
    let mut conf = String::new();
    for (index, port) in ports.iter().enumerate() {
        let (id, bus, epoch) = (node_id(index), port + BUS_OFFSET, index + 1);
        let slots = format!("{}-{}", BOUNDS[index], BOUNDS[index + 1] - 1);
        let lines = if index == myself {
            let ghost = ghost_id(index);
            format!(
                "{id} 127.0.0.1:{port}@{bus} myself,slave {ghost} 0 0 {epoch} connected\n\
                 {ghost} :0@0 master,noaddr - 0 0 {epoch} disconnected {slots}"
            )
        } else {
            format!("{id} 127.0.0.1:{port}@{bus} master - 0 0 {epoch} connected {slots}")
        };
        writeln!(conf, "{lines}").expect("writing to a String succeeds");
    }
    // Different epochs, so that the masters do not have to resolve a conflict.
    writeln!(conf, "vars currentEpoch {} lastVoteEpoch 0", MASTERS + 1 + myself)
        .expect("writing to a String succeeds");
    conf
}

fn node_id(index: usize) -> String {
    format!("{index:040x}")
}

/// The id of the master that does not exist.
fn ghost_id(index: usize) -> String {
    format!("{:040x}", 0xdead_0000 + index)
}
