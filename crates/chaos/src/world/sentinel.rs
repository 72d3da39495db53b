//! A master and a replica with three Sentinels. Both servers announce the port of their link.

use anyhow::Result;
use hob_testkit::{RedisOptions, RedisServer, wait_until};

use super::Member;
use super::links::{Entrance, Links, Party};

const NAME: &str = "hob";
const SENTINELS: usize = 3;

/// After this many milliseconds, a master that does not answer is replaced.
const DOWN_AFTER_MS: u32 = 3000;

#[derive(Debug)]
pub(crate) struct Sentinel {
    pub(crate) members: Vec<Member>,
    sentinels: Vec<RedisServer>,
}

impl Sentinel {
    pub(crate) async fn start(links: &Links) -> Result<Self> {
        let mut members = Vec::new();
        for number in 0..2 {
            let entrance = Entrance::open().await?;
            let public_port = entrance.port;
            let server = tokio::task::block_in_place(|| launch(public_port));
            links.forward(entrance, Party::Redis(number), server.port());
            links.register(server.pid(), Party::Redis(number));
            members.push(Member { server, public_port });
        }
        let [master, replica] = [0, 1].map(|at: usize| &members[at]);
        let port = master.public_port.to_string();
        let sentinels = tokio::task::block_in_place(|| {
            replica.server.command::<()>(&["REPLICAOF", "127.0.0.1", &port]);
            wait_until("the replica to follow its master", || replica.follows_its_master());
            let configuration = format!(
                "sentinel monitor {NAME} 127.0.0.1 {port} 2\n\
                 sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}\n\
                 sentinel failover-timeout {NAME} 6000\n"
            );
            (0..SENTINELS).map(|_| RedisServer::start_sentinel(&configuration)).collect()
        });
        Ok(Self { members, sentinels })
    }

    pub(crate) fn url(&self) -> String {
        let addresses = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port()));
        format!("redis+sentinel://{}/{NAME}", addresses.collect::<Vec<_>>().join(","))
    }

    /// Asks a Sentinel to promote the replica. The master need not be down.
    pub(crate) fn fail_over(&self) -> redis::RedisResult<()> {
        self.sentinels[0].try_command(&["SENTINEL", "FAILOVER", NAME])
    }

    /// All Sentinels know each other, and agree on the server that is the master.
    pub(super) fn check_whole(&self) -> Result<(), String> {
        let master = self.members.iter().find(|member| member.role().as_deref() == Some("master"));
        let master = master.ok_or("no server is the master")?;
        for sentinel in &self.sentinels {
            let address =
                sentinel.try_command::<(String, u16)>(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
            let (_, port) = address.map_err(|error| error.to_string())?;
            if port != master.public_port {
                return Err(format!(
                    "a Sentinel reports port {port} as the master, not {}",
                    master.public_port
                ));
            }
            let others = sentinel.try_command::<Vec<redis::Value>>(&["SENTINEL", "SENTINELS", NAME]);
            if others.map_err(|error| error.to_string())?.len() != SENTINELS - 1 {
                return Err("the Sentinels do not know each other".to_owned());
            }
        }
        Ok(())
    }
}

fn launch(public_port: u16) -> RedisServer {
    let port = public_port.to_string();
    let arguments = [
        ["--replica-announce-ip", "127.0.0.1"],
        ["--replica-announce-port", &port],
        ["--repl-diskless-sync-delay", "0"],
    ];
    let arguments = arguments.concat().into_iter().map(str::to_owned).collect();
    RedisServer::start_with(&RedisOptions { arguments, ..RedisOptions::default() })
}
