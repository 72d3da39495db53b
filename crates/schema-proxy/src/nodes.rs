//! The servers behind the proxy. Each has a listener; those of a Cluster are found in its map, and get a listener when they
//! first appear.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use hob_net::TlsError;
use hob_store::{Access, Address, Host, Store, cmd};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Shared;
use crate::checks::Checks;
use crate::cluster_map::{nodes_reply, parse_host, slot_ranges, slots_reply};
use crate::connection;
use crate::ledger::count;
use crate::replies::ClusterMap;
use crate::upstream::Upstream;

/// A Cluster has at most so many servers.
const MAX_NODES: usize = 1_000;
/// The pause after a connection could not be accepted, most likely for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a command of the proxy may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// One server and its listener.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) shared: Arc<Shared>,
    pub(crate) upstream: Upstream,
    /// The database that the proxy reads.
    pub(crate) database: u32,
    pub(crate) checks: Checks,
    /// Only in a Cluster.
    pub(crate) routes: Option<Arc<Nodes>>,
    store: Store,
}

/// All servers, by their address.
#[derive(Debug)]
pub(crate) struct Nodes {
    shared: Arc<Shared>,
    access: Access,
    database: u32,
    kind: Kind,
    nodes: Mutex<BTreeMap<Host, (SocketAddr, Arc<Node>)>>,
    pub(crate) tasks: TaskTracker,
    /// Ends connections.
    pub(crate) stop: CancellationToken,
    /// Ends the reading of keys.
    pub(crate) stop_checks: CancellationToken,
    itself: Weak<Nodes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Server,
    Cluster,
}

/// Why a server has no listener.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AddError {
    #[error(transparent)]
    Listen(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Store(#[from] hob_store::Error),
}

/// A connection of the proxy to one server.
pub(crate) fn open_store(host: &Host, database: u32, access: &Access) -> hob_store::Result<Store> {
    let address = Address::Server { host: host.clone(), db: database, access: access.clone() };
    Ok(Store::open(&address)?.with_deadline(COMMAND_LIMIT))
}

impl Nodes {
    pub(crate) fn new(shared: Arc<Shared>, access: Access, database: u32, kind: Kind) -> Arc<Nodes> {
        Arc::new_cyclic(|itself| Nodes {
            shared,
            access,
            database,
            kind,
            nodes: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            stop_checks: CancellationToken::new(),
            itself: itself.clone(),
        })
    }

    /// The address of the listener for a server, which is started if there is none. Must be called in a tokio runtime.
    pub(crate) fn add(&self, host: &Host) -> Result<SocketAddr, AddError> {
        let mut nodes = self.nodes.lock();
        if let Some((address, _)) = nodes.get(host) {
            return Ok(*address);
        }
        if nodes.len() >= MAX_NODES || self.stop.is_cancelled() {
            return Err(io::Error::other("too many servers").into());
        }
        let mut address = self.shared.options.listen;
        if address.port() != 0 {
            let port = usize::from(address.port()) + nodes.len();
            address.set_port(u16::try_from(port).map_err(io::Error::other)?);
        }
        let listener = std::net::TcpListener::bind(address)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let node = Arc::new(Node {
            shared: Arc::clone(&self.shared),
            upstream: Upstream::new(host.clone(), &self.access)?,
            database: self.database,
            checks: Checks::new(self.shared.options.grace),
            routes: (self.kind == Kind::Cluster).then(|| self.itself.upgrade()).flatten(),
            store: open_store(host, self.database, &self.access)?,
        });
        nodes.insert(host.clone(), (address, Arc::clone(&node)));
        drop(nodes);
        let checked = Arc::clone(&node);
        let stop_checks = self.stop_checks.clone();
        self.tasks.spawn(async move {
            let reading = checked.checks.run(&checked.shared, checked.store.clone());
            stop_checks.run_until_cancelled(reading).await;
        });
        self.tasks.spawn(accept(node, listener, self.tasks.clone(), self.stop.clone()));
        Ok(address)
    }

    pub(crate) fn all(&self) -> Vec<(Host, SocketAddr, Arc<Node>)> {
        let nodes = self.nodes.lock();
        nodes.iter().map(|(host, (address, node))| (host.clone(), *address, Arc::clone(node))).collect()
    }
}

async fn accept(node: Arc<Node>, listener: TcpListener, tasks: TaskTracker, stop: CancellationToken) {
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((client, peer)) => {
                let (node, stop) = (Arc::clone(&node), stop.clone());
                tasks.spawn(async move { stop.run_until_cancelled(serve(&node, client, peer)).await });
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a client connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(node: &Node, mut client: TcpStream, peer: SocketAddr) {
    let counts = &node.shared.ledger.counts;
    let Ok(_permit) = Arc::clone(&node.shared.permits).try_acquire_owned() else {
        count(&counts.rejected, 1);
        let _ = client.write_all(b"-ERR max number of clients reached\r\n").await;
        return;
    };
    count(&counts.accepted, 1);
    let _open = OpenConnection::new(node);
    if let Err(error) = connection::serve(node, client, peer).await {
        tracing::debug!(%error, client = %peer, "client connection failed");
    }
}

/// Counts a connection while it is open, even if its task is cancelled.
struct OpenConnection<'n>(&'n Node);

impl OpenConnection<'_> {
    fn new(node: &Node) -> OpenConnection<'_> {
        count(&node.shared.ledger.counts.connections, 1);
        OpenConnection(node)
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.shared.ledger.counts.connections.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Node {
    /// The address of the proxy for a server that a redirect names.
    pub(crate) fn route(&self, host: &str, local: IpAddr) -> Option<String> {
        let (name, port) = self.address(&parse_host(host, &self.upstream.host.name)?, local)?;
        Some(format!("{name}:{port}"))
    }

    /// Clients reach all listeners at the address at which they reached this one.
    fn address(&self, host: &Host, local: IpAddr) -> Option<(String, u16)> {
        let added = self.routes.as_ref()?.add(host);
        let added = added.inspect_err(|error| {
            tracing::warn!(server = %host, %error, "failed to listen for a server of the Cluster");
        });
        Some((local.to_string(), added.ok()?.port()))
    }

    /// The map of the Cluster as this server sees it.
    pub(crate) async fn cluster_map(&self, map: ClusterMap, local: IpAddr) -> String {
        let asked = &self.upstream.host.name;
        let address = |host: &Host| self.address(host, local);
        let reply = match map {
            ClusterMap::Slots => {
                slot_ranges(&self.store, asked).await.map(|ranges| slots_reply(&ranges, address))
            }
            ClusterMap::Nodes => {
                let text = self.store.run::<String>(cmd("CLUSTER").arg("NODES")).await;
                text.map(|text| nodes_reply(&text, asked, address))
            }
        };
        reply.unwrap_or_else(|error| {
            tracing::warn!(server = %self.upstream.host, %error, "failed to read the map of the Cluster");
            "-ERR the schema proxy cannot read the map of the Cluster\r\n".to_owned()
        })
    }
}
