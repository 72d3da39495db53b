//! The deployment under test: three nodes, Redis with replicas, PostgreSQL, and the links between them.

mod cluster;
mod failovers;
pub(crate) mod links;
mod node;
mod sentinel;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use hob_testkit::{Postgres, RedisServer};

use crate::fault::FaultLog;
use crate::http::Http;
use crate::report::Violations;
pub(crate) use cluster::Cluster;
use links::{Entrance, Links, Party};
pub(crate) use node::Node;
use sentinel::Sentinel;

/// The number of nodes.
pub(crate) const NODES: usize = 3;

/// The most shards of a set-up. One with fewer shards takes the remainder of a shard's number.
pub(crate) const SHARDS: usize = 3;

/// The node that runs with libfaketime.
pub(crate) const NODE_WITH_CLOCK: usize = 2;

/// How long the deployment may take to be whole again after the last fault, on a busy machine.
const RECOVERS_WITHIN: Duration = Duration::from_secs(90);

/// How Redis is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Setup {
    /// A Cluster of three masters with a replica each
    Cluster,
    /// A master and a replica with three Sentinels
    Sentinel,
}

impl Setup {
    /// The set-up of a seed, unless another is chosen.
    pub(crate) fn of_seed(seed: u64) -> Self {
        if seed.is_multiple_of(2) { Self::Cluster } else { Self::Sentinel }
    }
}

/// The Redis servers, and what makes them one deployment.
#[derive(Debug)]
pub(crate) enum Redis {
    Cluster(Cluster),
    Sentinel(Sentinel),
}

/// A Redis server and the port at which the others see it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) server: RedisServer,
    pub(crate) public_port: u16,
}

impl Member {
    /// The role as the server itself sees it: `master` or `slave`. `None` if it does not answer.
    fn role(&self) -> Option<String> {
        let info = self.server.try_command::<redis::InfoDict>(&["INFO", "replication"]).ok()?;
        info.get("role")
    }

    fn follows_its_master(&self) -> bool {
        let info = self.server.try_command::<redis::InfoDict>(&["INFO", "replication"]);
        info.is_ok_and(|info| info.get::<String>("master_link_status").as_deref() == Some("up"))
    }
}

/// Everything that runs, and what the traffic shares.
#[derive(Debug)]
pub(crate) struct World {
    // Dropped in this order: the nodes end first.
    pub(crate) nodes: Vec<Node>,
    pub(crate) redis: Redis,
    pub(crate) postgres: Postgres,
    pub(crate) links: Links,
    pub(crate) http: Http,
    pub(crate) faults: FaultLog,
    pub(crate) violations: Violations,
    pub(crate) begun: Instant,
    /// How many times the usual traffic is sent.
    pub(crate) traffic: u32,
}

impl World {
    /// Starts the servers, and then the nodes with this configuration.
    pub(crate) async fn start(
        setup: Setup,
        hob: &Path,
        folder: &Path,
        config: &str,
        traffic: u32,
    ) -> Result<Arc<Self>> {
        let links = Links::new();
        let redis = match setup {
            Setup::Cluster => Redis::Cluster(Cluster::start(&links).await?),
            Setup::Sentinel => Redis::Sentinel(Sentinel::start(&links).await?),
        };
        let entrance = Entrance::open().await.context("cannot listen on a port of this machine")?;
        let postgres = tokio::task::block_in_place(Postgres::start);
        let database = format!("postgres://postgres@127.0.0.1:{}/postgres", entrance.port);
        links.forward(entrance, Party::Postgres, postgres.port());
        let url = redis.url();
        let mut nodes = Vec::new();
        for number in 0..NODES {
            let node = Node::start(number, hob, folder, config, (&url, &database))?;
            links.register(node.process.id(), Party::Node(number));
            nodes.push(node);
        }
        let world = Arc::new(Self {
            nodes,
            redis,
            postgres,
            links,
            http: Http::new(),
            faults: FaultLog::default(),
            violations: Violations::default(),
            begun: Instant::now(),
            traffic,
        });
        world.wait_until_whole().await?;
        tokio::spawn(failovers::watch(Arc::downgrade(&world)));
        Ok(world)
    }

    /// Waits until all nodes are ready, and every shard has a master with a replica that follows it.
    pub(crate) async fn wait_until_whole(&self) -> Result<()> {
        let started = Instant::now();
        let mut state;
        loop {
            state = self.state().await;
            let Err(reason) = &state else { return Ok(()) };
            if started.elapsed() > RECOVERS_WITHIN {
                bail!("the deployment is not whole after {RECOVERS_WITHIN:?}: {reason}");
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn state(&self) -> Result<(), String> {
        tokio::task::block_in_place(|| self.redis.check_whole())?;
        for node in &self.nodes {
            // A node ends if it cannot reach Redis or PostgreSQL when it starts, and its supervisor starts it again.
            if tokio::task::block_in_place(|| node.process.ended()).is_some() {
                tokio::task::block_in_place(|| self.restart_node(node.number));
            }
            if self.http.get(node.api, "/readyz").await.ok(200).is_none() {
                return Err(format!("node {} is not ready", node.number));
            }
        }
        Ok(())
    }

    /// Restarts a node that was killed.
    pub(crate) fn restart_node(&self, number: usize) {
        let node = &self.nodes[number];
        node.process.restart();
        self.links.register(node.process.id(), Party::Node(number));
    }
}

impl Redis {
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Cluster(cluster) => cluster.url(),
            Self::Sentinel(sentinel) => sentinel.url(),
        }
    }

    pub(crate) fn members(&self) -> &[Member] {
        match self {
            Self::Cluster(cluster) => &cluster.members,
            Self::Sentinel(sentinel) => &sentinel.members,
        }
    }

    pub(crate) fn shards(&self) -> usize {
        self.members().len() / 2
    }

    /// The numbers of the two servers of a shard.
    pub(crate) fn servers_of(&self, shard: usize) -> [usize; 2] {
        let shard = shard % self.shards();
        [shard, shard + self.shards()]
    }

    /// The servers that are masters now.
    pub(crate) fn masters(&self) -> impl Iterator<Item = &Member> {
        let masters = (0..self.shards()).filter_map(|shard| self.master_and_replica(shard));
        masters.map(|(master, _)| &self.members()[master])
    }

    /// The number of a shard's master, and of its replica.
    pub(crate) fn master_and_replica(&self, shard: usize) -> Option<(usize, usize)> {
        let [first, second] = self.servers_of(shard);
        match (self.members()[first].role()?.as_str(), self.members()[second].role()?.as_str()) {
            ("master", "slave") => Some((first, second)),
            ("slave", "master") => Some((second, first)),
            _ => None,
        }
    }

    fn check_whole(&self) -> Result<(), String> {
        for shard in 0..self.shards() {
            let Some((_, replica)) = self.master_and_replica(shard) else {
                return Err(format!("shard {shard} does not have one master and one replica"));
            };
            if !self.members()[replica].follows_its_master() {
                return Err(format!("the replica of shard {shard} does not follow its master"));
            }
        }
        match self {
            Self::Cluster(cluster) => cluster.check_whole(),
            Self::Sentinel(sentinel) => sentinel.check_whole(),
        }
    }
}
