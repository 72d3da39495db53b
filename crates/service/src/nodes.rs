//! The nodes that share a store. Each node sends heartbeats and publishes a description of itself. All nodes must use
//! the same database, because the store is rebuilt from the database.

use std::collections::HashMap;
use std::time::Duration;

use hob_database::{DatabaseId, UnixMs};
use hob_store::members::{self, HeartbeatResult, Incarnation, MemberKeys};
use hob_store::repair::{self, KeyType};
use hob_store::{Store, Text, cmd};

use crate::keys::{self, Keys};
use crate::{ServiceContext, Task};

/// How long a node counts as alive after its last heartbeat.
pub const LEASE: Duration = Duration::from_secs(9);

/// Heartbeat interval.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);

/// Maximum number of dead nodes that one node removes per heartbeat.
const MAX_REMOVED: u32 = 16;

/// The description that a node publishes of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    pub name: String,
    pub version: String,
    /// The services that it runs.
    pub roles: Vec<String>,
    pub started_at: UnixMs,
    pub heartbeat_at: UnixMs,
}

/// Whether this database may use this store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreClaim {
    Ours,
    /// Another database has claimed it. Contains the id of that database.
    Taken(String),
}

/// Claims the store for a database. The first claim is valid until the store loses its data or is flushed.
pub async fn claim(store: &Store, keys: &Keys, database: DatabaseId) -> hob_store::Result<StoreClaim> {
    let (key, ours) = (keys.database(), database.to_string());
    let mut found = holder(store, keys).await?;
    if found.as_ref().is_some_and(|holder| holder.parse::<DatabaseId>().is_err()) {
        // Another client has written it: it protects no database.
        repair::report("hob", key.as_bytes());
        store.run::<u64>(cmd("DEL").arg(&key).clone()).await?;
        found = None;
    }
    if found.is_none() {
        store.run::<Option<String>>(cmd("SET").arg(&key).arg(&ours).arg("NX").clone()).await?;
        found = holder(store, keys).await?;
    }
    match found {
        // The store lost its data between the two commands. The next heartbeat claims it again.
        None => Ok(StoreClaim::Ours),
        Some(holder) if holder == ours => Ok(StoreClaim::Ours),
        Some(holder) => Ok(StoreClaim::Taken(holder)),
    }
}

/// The id of the database that has claimed the store.
pub async fn holder(store: &Store, keys: &Keys) -> hob_store::Result<Option<String>> {
    let key = keys.database();
    let holder: Option<Text> =
        repair::run(store, cmd("GET").arg(&key).clone(), &[(&key, KeyType::String)]).await?;
    Ok(holder.map(|Text(id)| id))
}

/// Lists the nodes that are alive.
pub async fn live(store: &Store, keys: &Keys) -> hob_store::Result<Vec<NodeInfo>> {
    let group = GroupKeys::new(keys);
    let members = members::live(store, group.members()).await?;
    let mut nodes = Vec::with_capacity(members.len());
    for member in members {
        let key = keys.node(&id(&member.incarnation));
        let fields: Vec<(Text, Text)> =
            repair::run(store, cmd("HGETALL").arg(&key).clone(), &[(&key, KeyType::Hash)]).await?;
        let fields: HashMap<String, String> =
            fields.into_iter().map(|(Text(field), Text(value))| (field, value)).collect();
        let text = |field: &str| fields.get(field).cloned().unwrap_or_default();
        let time = |field: &str| UnixMs(fields.get(field).and_then(|ms| ms.parse().ok()).unwrap_or(0));
        nodes.push(NodeInfo {
            name: member.node,
            version: text("version"),
            roles: text("roles").split(' ').filter(|role| !role.is_empty()).map(str::to_owned).collect(),
            started_at: time("started_at"),
            heartbeat_at: time("beat_at"),
        });
    }
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(nodes)
}

/// Sends heartbeats until the task stops, and removes dead nodes.
pub async fn keep_alive(context: ServiceContext, keys: Keys, roles: Vec<String>, task: Task) {
    let node = Node { context, keys, roles, started_at: UnixMs::now() };
    // Identifies one run of this node. A node that was declared dead comes back with a new incarnation.
    let mut incarnation = Incarnation::random();
    let mut joined = false;
    loop {
        match node.round(&incarnation, joined).await {
            Ok(HeartbeatResult::Alive { .. }) => joined = true,
            Ok(HeartbeatResult::Dead) => (incarnation, joined) = (Incarnation::random(), false),
            Err(error) => tracing::debug!(%error, "failed to send the heartbeat of this node"),
        }
        task.heartbeat();
        if !task.pause(HEARTBEAT_INTERVAL).await {
            break;
        }
    }
    let group = GroupKeys::new(&node.keys);
    if let Err(error) = members::leave(&node.context.store, group.members(), &incarnation).await {
        tracing::debug!(%error, "failed to remove this node from the list of nodes");
    }
}

struct Node {
    context: ServiceContext,
    keys: Keys,
    roles: Vec<String>,
    started_at: UnixMs,
}

impl Node {
    async fn round(&self, incarnation: &Incarnation, joined: bool) -> hob_store::Result<HeartbeatResult> {
        let (store, group) = (&self.context.store, GroupKeys::new(&self.keys));
        if let StoreClaim::Taken(other) = claim(store, &self.keys, self.context.database.id()).await? {
            tracing::error!(
                database = %self.context.database.id(),
                claimed_by = other,
                "Redis is already used with another Hob database"
            );
        }
        let heartbeat = if joined {
            members::heartbeat(store, group.members(), incarnation, LEASE).await?
        } else {
            members::join(store, group.members(), incarnation, self.context.node.as_str(), LEASE).await?
        };
        self.describe(incarnation).await?;
        for dead in members::claim_dead(store, group.members(), MAX_REMOVED, LEASE).await? {
            tracing::warn!(node = dead.node, "node lease expired");
            members::remove_dead(store, group.members(), &dead).await?;
        }
        Ok(heartbeat)
    }

    async fn describe(&self, incarnation: &Incarnation) -> hob_store::Result<()> {
        let key = self.keys.node(&id(incarnation));
        let mut write = cmd("HSET");
        write.arg(&key).arg("version").arg(env!("CARGO_PKG_VERSION")).arg("roles").arg(self.roles.join(" "));
        write.arg("started_at").arg(self.started_at.0).arg("beat_at").arg(UnixMs::now().0);
        let expiry =
            cmd("PEXPIRE").arg(&key).arg(u64::try_from(Keys::NODE_TTL_MAX.as_millis()).unwrap_or(0)).clone();
        let store = &self.context.store;
        for answer in store.batch(&[write.into(), expiry.into()]).await {
            // A key that another client has replaced is deleted; the next heartbeat writes it.
            repair::or_none(store, answer, (&key, KeyType::Hash)).await?;
        }
        Ok(())
    }
}

/// Owns the keys that [`MemberKeys`] borrows.
struct GroupKeys {
    live: hob_store::Key,
    info: hob_store::Key,
    dead: hob_store::Key,
}

impl GroupKeys {
    fn new(keys: &Keys) -> Self {
        let shard = keys.space().shards().next().unwrap_or_default();
        Self { live: keys.nodes(shard), info: keys.node_names(shard), dead: keys.dead_nodes(shard) }
    }

    fn members(&self) -> MemberKeys<'_> {
        MemberKeys { live: self.live.as_bytes(), info: self.info.as_bytes(), dead: self.dead.as_bytes() }
    }
}

fn id(incarnation: &Incarnation) -> keys::Incarnation {
    keys::Incarnation::new(incarnation.as_str()).expect("32 hexadecimal digits are an id")
}
