//! The proxy as a whole.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hob_net::TlsError;
use hob_schema::Catalog;
use hob_schema::lint::Severity;
use hob_store::{Access, Address, Host, Store, cmd};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::checks::DRAIN_LIMIT;
use crate::cluster_map::slot_ranges;
use crate::judge::Judge;
use crate::ledger::Ledger;
use crate::nodes::{AddError, Kind, Nodes, open_store};
use crate::rules::{FurtherCommand, Rules};
use crate::upstream::Upstream;
use crate::{Options, Shared};

/// Why a proxy could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the upstream must be redis://, rediss://, redis+cluster:// or rediss+cluster://")]
    Upstream,
    #[error("cannot read from the upstream: {0}")]
    Store(#[from] hob_store::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Listen(#[from] io::Error),
    #[error("cannot connect to the upstream {host}: {source}")]
    Connect { host: Host, source: io::Error },
    #[error(
        "cannot listen on {0}: the upstream needs no password, so every client that reaches this address could use it; set a \
         password there, or listen on a loopback address"
    )]
    Open(SocketAddr),
    #[error("the Cluster does not serve any slot yet")]
    NoSlots,
}

impl From<AddError> for Error {
    fn from(error: AddError) -> Error {
        match error {
            AddError::Listen(error) => Error::Listen(error),
            AddError::Tls(error) => Error::Tls(error),
            AddError::Store(error) => Error::Store(error),
        }
    }
}

/// A proxy that listens.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    nodes: Arc<Nodes>,
    first: SocketAddr,
}

/// What a proxy has counted. Can be read while it runs and afterwards.
#[derive(Clone, Debug)]
pub struct Totals(Arc<Shared>);

impl Proxy {
    /// Connects to the upstream, and listens for clients.
    pub async fn start(catalog: Catalog, options: Options) -> Result<Proxy, Error> {
        let (seeds, database, access, kind) = match &options.upstream {
            Address::Server { host, db, access } => (vec![host.clone()], *db, access.clone(), Kind::Server),
            Address::Cluster { seeds, access } => (seeds.clone(), 0, access.clone(), Kind::Cluster),
            Address::Embedded | Address::Sentinel { .. } => return Err(Error::Upstream),
        };
        let seed = Seed::find(&seeds, database, &access).await?;
        let kind = if seed.is_cluster().await? { Kind::Cluster } else { kind };
        let servers = match kind {
            Kind::Server => vec![seed.host.clone()],
            Kind::Cluster => seed.servers().await?,
        };
        refuse_open_upstream(&options, &servers, &access).await?;
        let rules = Rules::new(FurtherCommand::list(&seed.store).await?);
        let judge =
            Judge { catalog, slots: options.slots, undeclared_script_keys: options.undeclared_script_keys };
        let permits = Arc::new(Semaphore::new(options.max_connections.clamp(1, Semaphore::MAX_PERMITS)));
        let shared = Arc::new(Shared { options, judge, rules, ledger: Ledger::default(), permits });
        let nodes = Nodes::new(Arc::clone(&shared), access, database, kind);
        let mut first = None;
        for server in &servers {
            let address = nodes.add(server)?;
            first.get_or_insert(address);
        }
        Ok(Proxy { shared, nodes, first: first.ok_or(Error::NoSlots)? })
    }

    /// The address for clients; for those of a Cluster, one of the addresses.
    pub fn address(&self) -> SocketAddr {
        self.first
    }

    /// The servers and their addresses at the proxy.
    pub fn servers(&self) -> Vec<(Host, SocketAddr)> {
        self.nodes.all().into_iter().map(|(host, address, _)| (host, address)).collect()
    }

    pub fn totals(&self) -> Totals {
        Totals(Arc::clone(&self.shared))
    }

    /// Closes all connections, reads the keys that wait to be read, and ends.
    pub async fn stop(self) {
        self.nodes.stop.cancel();
        self.nodes.tasks.close();
        let drain = async {
            for (_, _, node) in self.nodes.all() {
                node.checks.drained().await;
            }
        };
        if timeout(DRAIN_LIMIT, drain).await.is_err() {
            tracing::warn!("keys that were written last were not read in time");
        }
        self.nodes.stop_checks.cancel();
        self.nodes.tasks.wait().await;
    }
}

impl Totals {
    /// Writes one line to the log.
    pub fn log(&self) {
        self.0.ledger.log_summary();
    }

    /// A line with the counts, and one for each kind of violation.
    pub fn report(&self) -> String {
        self.0.ledger.report(&self.0.judge.catalog)
    }

    /// The metrics in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        self.0.ledger.metrics(&self.0.judge.catalog)
    }

    /// The worst violation.
    pub fn worst(&self) -> Option<Severity> {
        self.0.ledger.worst()
    }
}

/// A server that answered.
struct Seed {
    host: Host,
    store: Store,
}

impl Seed {
    /// The first of these servers that answers.
    async fn find(hosts: &[Host], database: u32, access: &Access) -> Result<Seed, Error> {
        let mut failure = None;
        for host in hosts {
            let store = open_store(host, database, access)?;
            match store.run::<String>(cmd("PING")).await {
                Ok(_) => return Ok(Seed { host: host.clone(), store }),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.map_or(Error::Upstream, Error::Store))
    }

    async fn is_cluster(&self) -> Result<bool, Error> {
        match self.store.run::<String>(cmd("INFO").arg("cluster")).await {
            Ok(info) => Ok(info.contains("cluster_enabled:1")),
            Err(hob_store::Error::Refused { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The servers of a Cluster, this one first.
    async fn servers(&self) -> Result<Vec<Host>, Error> {
        let mut servers: Vec<Host> = Vec::new();
        for range in slot_ranges(&self.store, &self.host.name).await? {
            for host in range.hosts() {
                if !servers.contains(host) {
                    servers.push(host.clone());
                }
            }
        }
        servers.sort_by_key(|host| (host.port != self.host.port, host.clone()));
        Ok(servers)
    }
}

/// A server that trusts its own machine must not become reachable for others.
async fn refuse_open_upstream(options: &Options, servers: &[Host], access: &Access) -> Result<(), Error> {
    if options.listen.ip().is_loopback() {
        return Ok(());
    }
    for host in servers {
        let upstream = Upstream::new(host.clone(), access)?;
        let open =
            upstream.is_open().await.map_err(|source| Error::Connect { host: host.clone(), source })?;
        if open {
            return Err(Error::Open(options.listen));
        }
    }
    Ok(())
}
