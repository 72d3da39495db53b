//! This node among the others: its lease, and the sweeping of dead nodes.
//!
//! A node that holds its lease applies every control command before the change is acknowledged. One that is not [in
//! sync](Node::is_in_sync) reads the database before each delivery.

mod history;
#[cfg(test)]
mod tests;
mod witness;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use hob_database::{Database, Isolation, Transaction};
use hob_schema::Shard;
use hob_service::NodeName;
use hob_store::members::{self, HeartbeatResult, MemberKeys};
use hob_store::repair::{self, KeyType};
use hob_store::{Key, Store, Text, Value, cmd};
use parking_lot::Mutex;

use self::history::MessageHistory;
use crate::Error;
use crate::database::users;
use crate::keys::{Incarnation, Keys, UserId};
use crate::store::presence::PresenceStore;

/// How many users of a dead node are swept concurrently.
const SWEEP_BATCH: u32 = 256;
/// How many dead nodes are claimed at a time.
const MAX_CLAIMS: u32 = 4;

/// This node.
#[derive(Debug)]
pub(crate) struct Node {
    store: Store,
    keys: Keys,
    name: NodeName,
    lease: Duration,
    /// This process, in the witness keys.
    process: String,
    state: Mutex<LeaseState>,
    /// Serializes heartbeats, so that a node does not join twice.
    beating: tokio::sync::Mutex<()>,
    /// Serializes looks at the witness keys.
    looking: tokio::sync::Mutex<()>,
    /// Dead nodes that this node has claimed and not yet swept.
    claimed: tokio::sync::Mutex<Vec<members::Dead>>,
    pub(crate) history: Mutex<MessageHistory>,
}

#[derive(Debug)]
struct LeaseState {
    incarnation: members::Incarnation,
    started: Instant,
    /// Earlier incarnations of this node.
    previous: HashSet<members::Incarnation>,
    /// When each node was last seen alive, also by earlier incarnations.
    seen: HashMap<String, Instant>,
    /// When the lease expires by this node's own clock, counted from before the heartbeat was sent. `None` before the
    /// first heartbeat and when the incarnation is to end.
    lease_ends: Option<Instant>,
    /// Whether the incarnation is to end with the next heartbeat.
    invalidated: bool,
    /// Whether everything that an earlier incarnation may have missed was revalidated.
    synced: bool,
    /// The last look at each shard.
    looks: Vec<Option<witness::Look>>,
    /// When the last look that reached all shards began.
    looked: Option<Instant>,
    /// When a data loss in Redis was last detected.
    lost: Option<Instant>,
    /// The load that was last published, and when.
    last_load: Option<(NodeLoad, Instant)>,
}

/// The result of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heartbeat {
    /// The lease was renewed.
    Renewed,
    /// The lease had expired or was lost. The node has joined under a new incarnation.
    Rejoined,
}

/// The load of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeLoad {
    pub connections: u64,
    /// Users with a connection or a socket of another program.
    pub users: u64,
    /// Messages since the node started.
    pub messages: u64,
    pub deliveries: u64,
    /// Messages per 1,000 seconds since the previous heartbeat.
    pub messages_per_ks: u64,
    pub deliveries_per_ks: u64,
}

/// A live node and its load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    pub incarnation: String,
    pub name: String,
    pub load: NodeLoad,
}

impl Node {
    pub(crate) fn new(store: &Store, keys: &Keys, name: &NodeName, lease: Duration) -> Self {
        let shards = keys.space().shards().count();
        let state = LeaseState {
            incarnation: members::Incarnation::random(),
            started: Instant::now(),
            previous: HashSet::new(),
            seen: HashMap::new(),
            lease_ends: None,
            invalidated: false,
            synced: false,
            looks: vec![None; shards],
            looked: None,
            lost: None,
            last_load: None,
        };
        Self {
            store: store.clone(),
            keys: keys.clone(),
            name: name.clone(),
            lease,
            process: state.incarnation.to_string(),
            state: Mutex::new(state),
            beating: tokio::sync::Mutex::default(),
            looking: tokio::sync::Mutex::default(),
            claimed: tokio::sync::Mutex::default(),
            history: Mutex::default(),
        }
    }

    /// The current incarnation of this node.
    pub(crate) fn incarnation(&self) -> Incarnation {
        to_key_id(&self.state.lock().incarnation)
    }

    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    /// Whether this node applies changes before they are acknowledged.
    pub(crate) fn is_in_sync(&self) -> bool {
        let state = self.state.lock();
        state.synced && state.lease_ends.is_some_and(|lease_ends| Instant::now() < lease_ends)
    }

    /// Renews the lease, or joins under a new incarnation, which is not in sync until
    /// [`mark_synced`](Node::mark_synced).
    pub(crate) async fn heartbeat(&self) -> Result<Heartbeat, Error> {
        let _one_at_a_time = self.beating.lock().await;
        let keys = NodeKeys::new(&self.keys);
        let (incarnation, joined) = {
            let state = self.state.lock();
            (state.incarnation.clone(), state.lease_ends.is_some())
        };
        let begun = Instant::now();
        if joined
            && let HeartbeatResult::Alive { .. } =
                members::heartbeat(&self.store, keys.all(), &incarnation, self.lease).await?
            && self.state.lock().hold_lease(begun + self.lease)
        {
            return Ok(Heartbeat::Renewed);
        }
        let incarnation = members::Incarnation::random();
        self.state.lock().restart(incarnation.clone(), begun);
        members::join(&self.store, keys.all(), &incarnation, self.name.as_str(), self.lease).await?;
        self.state.lock().hold_lease(begun + self.lease);
        Ok(Heartbeat::Rejoined)
    }

    /// Records that this incarnation has revalidated what earlier ones may have missed.
    pub(crate) fn mark_synced(&self, incarnation: &Incarnation) {
        let mut state = self.state.lock();
        if state.incarnation.as_str() == incarnation.as_str() && !state.invalidated {
            state.synced = true;
        }
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.state.lock().synced
    }

    /// Ends the current incarnation with the next heartbeat. What it wrote to Redis may be wrong: it is swept, and
    /// the sockets of this node are restored.
    pub(crate) fn invalidate(&self) {
        let mut state = self.state.lock();
        state.lease_ends = None;
        state.invalidated = true;
        state.synced = false;
    }

    /// Whether this node has owned sockets under this incarnation, and they may still be in Redis.
    pub(crate) fn is_own(&self, incarnation: &str) -> bool {
        let state = self.state.lock();
        state.incarnation.as_str() == incarnation
            || state.previous.iter().any(|previous| previous.as_str() == incarnation)
    }

    /// Ends the leases of earlier incarnations. The current one has restored the open sockets, and other nodes sweep what
    /// is left.
    pub(crate) async fn end_previous(&self) -> Result<(), Error> {
        let previous: Vec<_> = self.state.lock().previous.iter().cloned().collect();
        let keys = NodeKeys::new(&self.keys);
        for incarnation in &previous {
            members::leave(&self.store, keys.all(), incarnation).await?;
        }
        Ok(())
    }

    /// Sets the users of dead nodes offline. Returns how many nodes were swept. A node whose sweep fails is swept again with
    /// the next call, because no other node can claim it before the claim ends. If this node dies too, that is after a lease;
    /// a sweep that takes longer may run on two nodes, and has the same result.
    pub(crate) async fn sweep(&self, presences: &PresenceStore, database: &Database) -> Result<usize, Error> {
        let keys = NodeKeys::new(&self.keys);
        let mut claimed = self.claimed.lock().await;
        let dead = members::claim_dead(&self.store, keys.all(), MAX_CLAIMS, self.lease).await?;
        claimed.retain(|old| dead.iter().all(|new| new.incarnation != old.incarnation));
        claimed.extend(dead);
        let (mut swept, mut unswept, mut failed) = (0, Vec::new(), None);
        for dead in claimed.drain(..) {
            match self.sweep_node(presences, database, &dead).await {
                Ok(()) => swept += 1,
                Err(error) => {
                    unswept.push(dead);
                    failed = Some(error);
                }
            }
        }
        *claimed = unswept;
        failed.map_or(Ok(swept), Err)
    }

    async fn sweep_node(
        &self,
        presences: &PresenceStore,
        database: &Database,
        dead: &members::Dead,
    ) -> Result<(), Error> {
        self.sweep_users(presences, database, &to_key_id(&dead.incarnation)).await?;
        tracing::info!(node = dead.node, "users of a dead chat node set offline");
        members::remove_dead(&self.store, NodeKeys::new(&self.keys).all(), dead).await?;
        Ok(())
    }

    /// Sets all users of a dead incarnation offline. Returns how many there were.
    pub(crate) async fn sweep_users(
        &self,
        presences: &PresenceStore,
        database: &Database,
        incarnation: &Incarnation,
    ) -> Result<usize, Error> {
        let mut swept = 0;
        loop {
            let mut users = presences.some_users(incarnation, SWEEP_BATCH).await?;
            if users.is_empty() {
                break;
            }
            // In order, so that two nodes that save the same users do not deadlock.
            users.sort();
            swept += users.len();
            save_last_seen(database, &users).await;
            let sweeps = users.iter().map(|user| presences.sweep(incarnation, user));
            futures_util::future::try_join_all(sweeps).await?;
        }
        let key = self.keys.nodes_load(first_shard());
        let load = cmd("HDEL").arg(&key).arg(incarnation.as_str()).take();
        repair::run::<(), _>(&self.store, load, &[(&key, KeyType::Hash)]).await?;
        Ok(swept)
    }

    /// The incarnations that are live or waiting to be swept.
    pub(crate) async fn known(&self) -> Result<HashSet<String>, Error> {
        let mut known: HashSet<String> =
            self.live().await?.iter().map(|member| member.incarnation.to_string()).collect();
        for list in [self.keys.nodes_live(first_shard()), self.keys.nodes_dead(first_shard())] {
            let all = cmd("ZRANGE").arg(&list).arg(0).arg(-1).take();
            let all: Vec<Text> = repair::run(&self.store, all, &[(list, KeyType::Zset)]).await?;
            known.extend(all.into_iter().map(|Text(incarnation)| incarnation));
        }
        known.insert(self.incarnation().to_string());
        Ok(known)
    }

    /// The live nodes, including this one.
    pub(crate) async fn live(&self) -> Result<Vec<members::Member>, Error> {
        let live = members::live(&self.store, NodeKeys::new(&self.keys).all()).await?;
        let mut state = self.state.lock();
        let (now, lease) = (Instant::now(), self.lease);
        state.seen.retain(|_, seen| now.duration_since(*seen) < lease);
        for member in &live {
            state.seen.insert(member.incarnation.to_string(), now);
        }
        let LeaseState { previous, seen, .. } = &mut *state;
        previous.retain(|previous| seen.contains_key(previous.as_str()));
        drop(state);
        Ok(live)
    }

    /// The other nodes that may deliver something, and so have to confirm control commands. If Redis lost the list,
    /// it lacks nodes that still hold their leases; so a new incarnation also counts those that were seen before.
    pub(crate) async fn others(&self) -> Result<HashSet<String>, Error> {
        let live = self.live().await?;
        let state = self.state.lock();
        let mut others: HashSet<String> = live.iter().map(|member| member.incarnation.to_string()).collect();
        let listed = others.contains(state.incarnation.as_str());
        if !listed || state.started.elapsed() < self.lease {
            others.extend(state.seen.keys().cloned());
        }
        others.remove(state.incarnation.as_str());
        for previous in &state.previous {
            others.remove(previous.as_str());
        }
        Ok(others)
    }

    /// Gives up the lease, for a clean shutdown.
    pub(crate) async fn leave(&self) -> Result<(), Error> {
        let incarnation = self.state.lock().incarnation.clone();
        self.state.lock().lease_ends = None;
        Ok(members::leave(&self.store, NodeKeys::new(&self.keys).all(), &incarnation).await?)
    }

    /// Publishes the load of this node.
    pub(crate) async fn publish_load(&self, load: NodeLoad) -> Result<(), Error> {
        let load = self.state.lock().measure(load, Instant::now());
        let NodeLoad { connections, users, messages, deliveries, messages_per_ks, deliveries_per_ks } = load;
        let text =
            format!("{connections} {users} {messages} {deliveries} {messages_per_ks} {deliveries_per_ks}");
        let field = self.incarnation();
        let key = self.keys.nodes_load(first_shard());
        let set = cmd("HSET").arg(&key).arg(field.as_str()).arg(text).take();
        Ok(repair::run(&self.store, set, &[(&key, KeyType::Hash)]).await?)
    }

    /// Adds the messages of all nodes to the history, if it is time.
    pub(crate) async fn record_history(&self) -> Result<(), Error> {
        if self.history.lock().is_due(Instant::now()) {
            let nodes = self.loads().await?;
            self.history.lock().add(Instant::now(), &nodes);
        }
        Ok(())
    }

    /// The live nodes and their load.
    pub(crate) async fn loads(&self) -> Result<Vec<NodeInfo>, Error> {
        let live = self.live().await?;
        let (mut call, key) = (cmd("HMGET"), self.keys.nodes_load(first_shard()));
        call.arg(&key);
        for member in &live {
            call.arg(member.incarnation.as_str());
        }
        if live.is_empty() {
            return Ok(Vec::new());
        }
        let loads: Vec<Value> = repair::run(&self.store, call, &[(&key, KeyType::Hash)]).await?;
        let read = |(member, load): (members::Member, Value)| NodeInfo {
            incarnation: member.incarnation.to_string(),
            name: member.node,
            load: <String as hob_store::FromRedisValue>::from_redis_value(load)
                .map_or_else(|_| NodeLoad::default(), |text| parse_load(&text)),
        };
        Ok(live.into_iter().zip(loads).map(read).collect())
    }
}

fn parse_load(text: &str) -> NodeLoad {
    let mut numbers = text.split(' ').map(|number| number.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    NodeLoad {
        connections: next(),
        users: next(),
        messages: next(),
        deliveries: next(),
        messages_per_ks: next(),
        deliveries_per_ks: next(),
    }
}

impl LeaseState {
    fn restart(&mut self, incarnation: members::Incarnation, now: Instant) {
        let previous = std::mem::replace(&mut self.incarnation, incarnation);
        self.previous.insert(previous);
        self.started = now;
        self.lease_ends = None;
        self.invalidated = false;
        self.synced = false;
    }

    /// Records that the lease of the current incarnation was renewed. `false` if the incarnation was invalidated in the
    /// meantime: then it still has to end.
    fn hold_lease(&mut self, until: Instant) -> bool {
        if !self.invalidated {
            self.lease_ends = Some(until);
        }
        !self.invalidated
    }

    /// Adds the rates since the previous measurement.
    fn measure(&mut self, mut load: NodeLoad, now: Instant) -> NodeLoad {
        let (before, then) = self.last_load.replace((load, now)).unwrap_or((load, now));
        let ms = now.saturating_duration_since(then).as_millis().max(1);
        let per_ks = |now: u64, then: u64| (u128::from(now.saturating_sub(then)) * 1_000_000 / ms) as u64;
        load.messages_per_ks = per_ks(load.messages, before.messages);
        load.deliveries_per_ks = per_ks(load.deliveries, before.deliveries);
        load
    }
}

impl NodeLoad {
    /// The sum of two loads.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            connections: self.connections + other.connections,
            users: self.users + other.users,
            messages: self.messages + other.messages,
            deliveries: self.deliveries + other.deliveries,
            messages_per_ks: self.messages_per_ks + other.messages_per_ks,
            deliveries_per_ks: self.deliveries_per_ks + other.deliveries_per_ks,
        }
    }

    #[must_use]
    pub fn messages_per_s(self) -> f64 {
        self.messages_per_ks as f64 / 1_000.0
    }

    #[must_use]
    pub fn deliveries_per_s(self) -> f64 {
        self.deliveries_per_ks as f64 / 1_000.0
    }

    pub(crate) fn message_rate(self) -> String {
        format!("{:.1}", self.messages_per_s())
    }

    pub(crate) fn delivery_rate(self) -> String {
        format!("{:.1}", self.deliveries_per_s())
    }
}

/// Saves in the database that these users were online until now. Their presence does not wait for a database that is
/// unavailable.
pub(crate) async fn save_last_seen(database: &Database, users: &[UserId]) {
    let work = |tx: Transaction| async move { users::set_last_seen(&tx, users).await };
    if let Err(error) = database.write_with(Isolation::ReadCommitted, work).await {
        tracing::warn!(%error, "failed to save when users were last online");
    }
}

/// The keys of the node list, all in the first shard.
struct NodeKeys {
    live: Key,
    info: Key,
    dead: Key,
}

impl NodeKeys {
    fn new(keys: &Keys) -> Self {
        let shard = first_shard();
        Self { live: keys.nodes_live(shard), info: keys.nodes_info(shard), dead: keys.nodes_dead(shard) }
    }

    fn all(&self) -> MemberKeys<'_> {
        MemberKeys { live: self.live.as_bytes(), info: self.info.as_bytes(), dead: self.dead.as_bytes() }
    }
}

fn first_shard() -> Shard {
    Shard::default()
}

fn to_key_id(incarnation: &members::Incarnation) -> Incarnation {
    Incarnation::new(incarnation.as_str()).expect("32 hexadecimal digits are an id")
}
