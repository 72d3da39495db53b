//! This node among the others: its lease, what it does when it lost it, and the sweeping of dead nodes.
//!
//! A node that holds its lease hears of every change of who may see what before it is acknowledged. One that
//! does not is [unsure](Node::is_sure), and looks into the database before each delivery.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use hob_schema::{Key, Shard};
use hob_service::NodeName;
use hob_store::members::{self, Beat, Dead, MemberKeys};
use hob_store::mend::{self, Kind};
use hob_store::{Reply, Script, Store, Value, cmd};
use parking_lot::Mutex;

use crate::Error;
use crate::keys::{Incarnation, Keys};
use crate::store::presence::Presences;

static WITNESS: Script = Script::new(include_str!("node/witness.lua"));

/// A dead node's users are swept so many at a time.
const SWEEP_BATCH: u32 = 256;
/// A sweeper that does not report back within this time loses its claim.
const SWEEP_WITHIN: Duration = Duration::from_secs(60);
/// In so many leases every node has noticed a loss, or is dead and swept.
const LATELY: u32 = 10;
/// Witnesses are asked a few at a time: all of them within four beats.
const WITNESSES_AT_ONCE: usize = 4;

/// This node.
#[derive(Debug)]
pub(crate) struct Node {
    store: Store,
    keys: Keys,
    name: NodeName,
    lease: Duration,
    life: Mutex<Life>,
}

#[derive(Debug)]
struct Life {
    incarnation: members::Incarnation,
    born: Instant,
    /// This node's own lives before this one.
    former: HashSet<String>,
    /// When each node was last seen alive, in this life and before it.
    seen: HashMap<String, Instant>,
    /// The end of the lease by this node's own clock, which has no reason to agree with the store's: counted from
    /// before the beat was sent. `None` before the first one, and when this life is to end.
    until: Option<Instant>,
    /// Whether everything that the life before may have missed was looked at again.
    settled: bool,
    witnesses: Vec<Option<String>>,
    next_witness: usize,
    /// When a part of the store was last seen to have lost its data.
    lost: Option<Instant>,
    /// What the node carried when that was last published.
    measured: Option<(Load, Instant)>,
}

/// What a beat found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pulse {
    /// The lease is renewed.
    Held,
    /// The lease had ended, or the store has lost it: this is a new life, under a new incarnation.
    Reborn,
}

/// What a node carries, as the operators' page shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub connections: u64,
    pub users: u64,
    /// Since the node started.
    pub messages: u64,
    pub deliveries: u64,
    /// In a thousand seconds, of late.
    pub messages_per_ks: u64,
    pub deliveries_per_ks: u64,
}

/// A live node and what it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLoad {
    pub incarnation: String,
    pub name: String,
    pub load: Load,
}

impl Node {
    pub(crate) fn new(store: &Store, keys: &Keys, name: &NodeName, lease: Duration) -> Self {
        let shards = keys.space().shards().count();
        let life = Life {
            incarnation: members::Incarnation::random(),
            born: Instant::now(),
            former: HashSet::new(),
            seen: HashMap::new(),
            until: None,
            settled: false,
            witnesses: vec![None; shards],
            next_witness: 0,
            lost: None,
            measured: None,
        };
        Self { store: store.clone(), keys: keys.clone(), name: name.clone(), lease, life: Mutex::new(life) }
    }

    /// The present life of this node.
    pub(crate) fn incarnation(&self) -> Incarnation {
        own(&self.life.lock().incarnation)
    }

    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    /// Whether this node is certain to hear of changes before they are acknowledged.
    pub(crate) fn is_sure(&self) -> bool {
        let life = self.life.lock();
        life.settled && life.until.is_some_and(|until| Instant::now() < until)
    }

    /// Renews the lease, or begins a new life, which is not sure of anything until it is [settled](Node::settle).
    pub(crate) async fn beat(&self) -> Result<Pulse, Error> {
        match self.try_beat().await {
            // The list of nodes is of the wrong type: every node joins again, as after a loss.
            Err(Error::Store(error)) if error.is_wrong_type() => {
                let GroupKeys { live, info, dead } = GroupKeys::new(&self.keys);
                let keys = [(live, Kind::Zset), (info, Kind::Hash), (dead, Kind::Zset)];
                mend::mend(&self.store, &keys).await?;
                self.try_beat().await
            }
            pulse => pulse,
        }
    }

    async fn try_beat(&self) -> Result<Pulse, Error> {
        let keys = GroupKeys::new(&self.keys);
        let (incarnation, joined) = {
            let life = self.life.lock();
            (life.incarnation.clone(), life.until.is_some())
        };
        let begun = Instant::now();
        if joined
            && let Beat::Alive { .. } =
                members::beat(&self.store, keys.all(), &incarnation, self.lease).await?
        {
            self.life.lock().until = Some(begun + self.lease);
            return Ok(Pulse::Held);
        }
        let incarnation = members::Incarnation::random();
        self.life.lock().begin(incarnation.clone(), begun);
        members::join(&self.store, keys.all(), &incarnation, self.name.as_str(), self.lease).await?;
        self.life.lock().until = Some(begun + self.lease);
        Ok(Pulse::Reborn)
    }

    /// Says that everything that a former life may have missed was looked at again in this one.
    pub(crate) fn settle(&self, incarnation: &Incarnation) {
        let mut life = self.life.lock();
        if life.incarnation.as_str() == incarnation.as_str() {
            life.settled = true;
        }
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.life.lock().settled
    }

    /// Ends the present life with the next beat: what it has left in the store may not be what it should be, and
    /// is swept, and this node's sockets are published again.
    pub(crate) fn doubt(&self) {
        let mut life = self.life.lock();
        life.until = None;
        life.settled = false;
    }

    /// Looks whether a part of the store has lost its data since this node last looked.
    pub(crate) async fn look_for_losses(&self) -> Result<bool, Error> {
        let shards: Vec<Shard> = self.keys.space().shards().collect();
        let from = self.life.lock().next_witness;
        let mut lost = false;
        for at in (from..from + WITNESSES_AT_ONCE.min(shards.len())).map(|at| at % shards.len()) {
            let key = self.keys.witness(shards[at]);
            let call = WITNESS.on(&[&key]).arg(word());
            let mut reply: Reply = mend::run(&self.store, call, &[(&key, Kind::String)]).await?;
            let found: String = reply.next()?;
            let mut life = self.life.lock();
            lost |= life.witnesses[at].as_ref().is_some_and(|known| *known != found);
            life.witnesses[at] = Some(found);
            life.next_witness = (at + 1) % shards.len();
        }
        if lost {
            self.life.lock().lost = Some(Instant::now());
        }
        Ok(lost)
    }

    /// Whether a node that dies now may have had no time to write its users down again after a loss.
    pub(crate) fn lost_lately(&self) -> bool {
        self.life.lock().lost.is_some_and(|lost| lost.elapsed() < self.lease * LATELY)
    }

    /// Takes the users of dead nodes offline. Answers with how many nodes were swept.
    pub(crate) async fn sweep(&self, presences: &Presences) -> Result<usize, Error> {
        let keys = GroupKeys::new(&self.keys);
        let dead = members::sweep(&self.store, keys.all(), 4, SWEEP_WITHIN).await?;
        for dead in &dead {
            self.sweep_one(presences, dead).await?;
            members::swept(&self.store, keys.all(), dead).await?;
        }
        Ok(dead.len())
    }

    async fn sweep_one(&self, presences: &Presences, dead: &Dead) -> Result<(), Error> {
        self.sweep_users(presences, &own(&dead.incarnation)).await?;
        tracing::info!(node = dead.node, "swept a node that is gone");
        Ok(())
    }

    /// Takes all users of a life of a node that is over offline. Answers with how many there were.
    pub(crate) async fn sweep_users(
        &self,
        presences: &Presences,
        incarnation: &Incarnation,
    ) -> Result<usize, Error> {
        let mut swept = 0;
        loop {
            let users = presences.some_users(incarnation, SWEEP_BATCH).await?;
            if users.is_empty() {
                break;
            }
            swept += users.len();
            let sweeps = users.iter().map(|user| presences.sweep(incarnation, user));
            futures_util::future::try_join_all(sweeps).await?;
        }
        let key = self.keys.nodes_load(first());
        let load = cmd("HDEL").arg(&key).arg(incarnation.as_str()).take();
        mend::run::<(), _>(&self.store, load, &[(&key, Kind::Hash)]).await?;
        Ok(swept)
    }

    /// The lives of nodes that are live, or that somebody is going to sweep.
    pub(crate) async fn known(&self) -> Result<HashSet<String>, Error> {
        let mut known: HashSet<String> =
            self.live().await?.iter().map(|member| member.incarnation.to_string()).collect();
        for list in [self.keys.nodes_live(first()), self.keys.nodes_dead(first())] {
            let all = cmd("ZRANGE").arg(list).arg(0).arg(-1).take();
            known.extend(self.store.run::<Vec<String>>(all).await?);
        }
        known.insert(self.incarnation().to_string());
        Ok(known)
    }

    /// Who is live, this node among them.
    pub(crate) async fn live(&self) -> Result<Vec<members::Member>, Error> {
        let live = members::live(&self.store, GroupKeys::new(&self.keys).all()).await?;
        let mut life = self.life.lock();
        let (now, lease) = (Instant::now(), self.lease);
        life.seen.retain(|_, seen| now.duration_since(*seen) < lease);
        for member in &live {
            life.seen.insert(member.incarnation.to_string(), now);
        }
        let Life { former, seen, .. } = &mut *life;
        former.retain(|former| seen.contains_key(former));
        drop(life);
        Ok(live)
    }

    /// The other nodes that may tell somebody something, and so have to confirm an order. A list that the store has
    /// lost lacks nodes that still trust their leases: while this life is young, those that were seen before count.
    pub(crate) async fn others(&self) -> Result<HashSet<String>, Error> {
        let live = self.live().await?;
        let life = self.life.lock();
        let mut others: HashSet<String> = live.iter().map(|member| member.incarnation.to_string()).collect();
        let listed = others.contains(life.incarnation.as_str());
        if !listed || life.born.elapsed() < self.lease {
            others.extend(life.seen.keys().cloned());
        }
        others.remove(life.incarnation.as_str());
        others.retain(|other| !life.former.contains(other));
        Ok(others)
    }

    /// Ends this life at once, for a clean stop.
    pub(crate) async fn leave(&self) -> Result<(), Error> {
        let incarnation = self.life.lock().incarnation.clone();
        self.life.lock().until = None;
        Ok(members::leave(&self.store, GroupKeys::new(&self.keys).all(), &incarnation).await?)
    }

    /// Tells the others what this node carries.
    pub(crate) async fn publish_load(&self, load: Load) -> Result<(), Error> {
        let load = self.life.lock().measure(load, Instant::now());
        let Load { connections, users, messages, deliveries, messages_per_ks, deliveries_per_ks } = load;
        let text =
            format!("{connections} {users} {messages} {deliveries} {messages_per_ks} {deliveries_per_ks}");
        let field = self.incarnation();
        let key = self.keys.nodes_load(first());
        let set = cmd("HSET").arg(&key).arg(field.as_str()).arg(text).take();
        Ok(mend::run(&self.store, set, &[(&key, Kind::Hash)]).await?)
    }

    /// What every live node carries.
    pub(crate) async fn loads(&self) -> Result<Vec<NodeLoad>, Error> {
        let live = self.live().await?;
        let (mut call, key) = (cmd("HMGET"), self.keys.nodes_load(first()));
        call.arg(&key);
        for member in &live {
            call.arg(member.incarnation.as_str());
        }
        if live.is_empty() {
            return Ok(Vec::new());
        }
        let loads: Vec<Value> = mend::run(&self.store, call, &[(&key, Kind::Hash)]).await?;
        let read = |(member, load): (members::Member, Value)| NodeLoad {
            incarnation: member.incarnation.to_string(),
            name: member.node,
            load: <String as hob_store::FromRedisValue>::from_redis_value(load)
                .map_or_else(|_| Load::default(), |text| parse_load(&text)),
        };
        Ok(live.into_iter().zip(loads).map(read).collect())
    }
}

fn parse_load(text: &str) -> Load {
    let mut numbers = text.split(' ').map(|number| number.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    Load {
        connections: next(),
        users: next(),
        messages: next(),
        deliveries: next(),
        messages_per_ks: next(),
        deliveries_per_ks: next(),
    }
}

impl Life {
    fn begin(&mut self, incarnation: members::Incarnation, now: Instant) {
        let former = std::mem::replace(&mut self.incarnation, incarnation);
        self.former.insert(former.to_string());
        self.born = now;
        self.until = None;
        self.settled = false;
    }

    /// The load with its rates since the last time.
    fn measure(&mut self, mut load: Load, now: Instant) -> Load {
        let (before, then) = self.measured.replace((load, now)).unwrap_or((load, now));
        let ms = now.saturating_duration_since(then).as_millis().max(1);
        let per_ks = |now: u64, then: u64| (u128::from(now.saturating_sub(then)) * 1_000_000 / ms) as u64;
        load.messages_per_ks = per_ks(load.messages, before.messages);
        load.deliveries_per_ks = per_ks(load.deliveries, before.deliveries);
        load
    }
}

impl Load {
    /// Both together.
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

/// The keys of the group, all in the first shard.
struct GroupKeys {
    live: Key,
    info: Key,
    dead: Key,
}

impl GroupKeys {
    fn new(keys: &Keys) -> Self {
        let shard = first();
        Self { live: keys.nodes_live(shard), info: keys.nodes_info(shard), dead: keys.nodes_dead(shard) }
    }

    fn all(&self) -> MemberKeys<'_> {
        MemberKeys { live: self.live.as_bytes(), info: self.info.as_bytes(), dead: self.dead.as_bytes() }
    }
}

fn first() -> Shard {
    Shard::default()
}

fn own(incarnation: &members::Incarnation) -> Incarnation {
    Incarnation::new(incarnation.as_str()).expect("32 hexadecimal digits are an id")
}

fn word() -> String {
    format!("{:032x}", rand::random::<u128>())
}
