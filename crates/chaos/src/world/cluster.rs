//! A Redis Cluster of three masters with a replica each. Every server announces the port of its link.

use std::time::Duration;

use anyhow::Result;
use hob_testkit::{RedisOptions, RedisServer, wait_until};

use super::links::{Entrance, Links, Party};
use super::{Member, SHARDS};

/// After this time, a master that does not answer is replaced.
const NODE_TIMEOUT: Duration = Duration::from_secs(3);

/// The first slot of each master, and one past the last.
const BOUNDS: [u16; SHARDS + 1] = [0, 5461, 10_923, 16_384];

const BUS_OFFSET: u16 = 10_000;

/// The servers: first the initial masters, then the initial replicas.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) members: Vec<Member>,
}

impl Cluster {
    pub(crate) async fn start(links: &Links) -> Result<Self> {
        let mut members = Vec::new();
        for number in 0..2 * SHARDS {
            let entrance = Entrance::open().await?;
            let public_port = entrance.port;
            let server = tokio::task::block_in_place(|| launch(public_port));
            links.forward(entrance, Party::Redis(number), server.port());
            links.register(server.pid(), Party::Redis(number));
            members.push(Member { server, public_port });
        }
        let cluster = Self { members };
        tokio::task::block_in_place(|| cluster.join());
        Ok(cluster)
    }

    pub(crate) fn url(&self) -> String {
        let addresses = self.members.iter().map(|member| format!("127.0.0.1:{}", member.public_port));
        format!("redis+cluster://{}", addresses.collect::<Vec<_>>().join(","))
    }

    pub(super) fn check_whole(&self) -> Result<(), String> {
        self.members.iter().try_for_each(|member| {
            let info: String =
                member.server.try_command(&["CLUSTER", "INFO"]).map_err(|error| error.to_string())?;
            let expected = ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:6"];
            match expected.iter().find(|line| !info.contains(*line)) {
                None => Ok(()),
                Some(line) => {
                    Err(format!("the Redis on port {} does not report {line}", member.server.port()))
                }
            }
        })
    }

    /// The id of a server in the Cluster.
    pub(crate) fn id(&self, number: usize) -> redis::RedisResult<String> {
        self.members[number].server.try_command(&["CLUSTER", "MYID"])
    }

    /// Gives the slots to the masters, and a replica to each.
    fn join(&self) {
        for (shard, member) in self.members.iter().take(SHARDS).enumerate() {
            let (first, last) = (BOUNDS[shard].to_string(), (BOUNDS[shard + 1] - 1).to_string());
            member.server.command::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            // Different epochs, so that the masters do not have to resolve a conflict.
            member.server.command::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(shard + 1).to_string()]);
        }
        let first = &self.members[0];
        let bus = (first.server.port() + BUS_OFFSET).to_string();
        for member in &self.members[1..] {
            member.server.command::<()>(&[
                "CLUSTER",
                "MEET",
                "127.0.0.1",
                &first.public_port.to_string(),
                &bus,
            ]);
        }
        for (number, member) in self.members.iter().enumerate() {
            wait_until("the servers to know each other", || {
                member.server.command::<String>(&["CLUSTER", "INFO"]).contains("cluster_known_nodes:6")
            });
            if number >= SHARDS {
                let master: String = self.members[number - SHARDS].server.command(&["CLUSTER", "MYID"]);
                member.server.command::<()>(&["CLUSTER", "REPLICATE", &master]);
            }
        }
    }
}

fn launch(public_port: u16) -> RedisServer {
    let (port, timeout) = (public_port.to_string(), NODE_TIMEOUT.as_millis().to_string());
    let arguments = [
        ["--cluster-enabled", "yes"],
        ["--cluster-announce-ip", "127.0.0.1"],
        ["--cluster-announce-port", &port],
        ["--cluster-node-timeout", &timeout],
        // A replica may be promoted however long it was disconnected: what it lacks is lost, which is the point.
        ["--cluster-replica-validity-factor", "0"],
        ["--cluster-allow-replica-migration", "no"],
        ["--repl-diskless-sync-delay", "0"],
    ];
    let arguments = arguments.concat().into_iter().map(str::to_owned).collect();
    RedisServer::start_with(&RedisOptions { arguments, ..RedisOptions::default() })
}
