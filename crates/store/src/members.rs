//! Node membership. Each process of a node has a random id, its incarnation, and holds a lease under this id. Live nodes
//! clean up after dead incarnations: at least once for each, and one node at a time.

use std::fmt;
use std::time::Duration;

use crate::clock::CLOCK;
use crate::clock::millis;
use crate::error::Result;
use crate::repair::{self, KeyType, STORED};
use crate::reply::{Reply, Text};
use crate::script::{Call, Script};
use crate::store::Store;

const NOW: &str = include_str!("members/clock.lua");

static JOIN: Script = Script::with(&[CLOCK, STORED, NOW], include_str!("members/join.lua"));
static HEARTBEAT: Script = Script::with(&[CLOCK, STORED, NOW], include_str!("members/heartbeat.lua"));
static LEAVE: Script = Script::new(include_str!("members/leave.lua"));
static LIVE: Script = Script::with(&[CLOCK, STORED, NOW], include_str!("members/live.lua"));
static CLAIM_DEAD: Script = Script::with(&[CLOCK, STORED, NOW], include_str!("members/claim_dead.lua"));
static REMOVE_DEAD: Script = Script::new(include_str!("members/remove_dead.lua"));

/// The keys of one group of members, all in one slot.
#[derive(Clone, Copy, Debug)]
pub struct MemberKeys<'a> {
    /// Sorted set of live incarnations by the end of their lease.
    pub live: &'a [u8],
    /// Hash of node names by incarnation.
    pub info: &'a [u8],
    /// Sorted set of dead incarnations by the end of the claim to clean up after them.
    pub dead: &'a [u8],
}

impl MemberKeys<'_> {
    /// Runs a call on these keys. If another client has changed one of them, every node joins again, as after a loss.
    async fn run(&self, store: &Store, call: Call) -> Result<Reply> {
        let keys = [(self.live, KeyType::Zset), (self.info, KeyType::Hash), (self.dead, KeyType::Zset)];
        repair::run(store, call, &keys).await
    }
}

/// Identifies one run of a node. It is random, so that a restarted node is never mistaken for its previous run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(String);

impl Incarnation {
    /// A new incarnation: 128 random bits.
    #[must_use]
    pub fn random() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()))
    }

    /// An incarnation that a script read; `None` if another client has written something else.
    fn parse(text: String) -> Option<Self> {
        (text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(Self(text))
    }

    /// Its text, 32 hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A live node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its current run.
    pub incarnation: Incarnation,
    /// Its name.
    pub node: String,
}

/// A dead node that the caller has claimed for cleanup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead {
    /// The run that ended.
    pub incarnation: Incarnation,
    /// The node's name.
    pub node: String,
    /// The claim, for [`remove_dead`].
    pub claim: u64,
}

/// The result of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeartbeatResult {
    /// The incarnation is live.
    Alive {
        /// When the lease expires by the store's clock, in Unix milliseconds, unless it is renewed.
        until_unix_ms: u64,
    },
    /// The lease had expired. The node must join again as a new incarnation and publish its state again.
    Dead,
}

/// The result of [`remove_dead`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    Removed,
    /// The claim had expired, and another node has claimed the incarnation or finished with it.
    Superseded,
}

/// Registers a new incarnation of `node`, live for `hold`.
pub async fn join(
    store: &Store,
    keys: MemberKeys<'_>,
    incarnation: &Incarnation,
    node: &str,
    hold: Duration,
) -> Result<HeartbeatResult> {
    let call = JOIN.on(&[keys.live, keys.info]);
    let call = call.arg(&incarnation.0).arg(node).arg(millis(hold)).arg(store.clock().us());
    read_beat(keys.run(store, call).await?)
}

/// Renews the lease of an incarnation for `hold`.
pub async fn heartbeat(
    store: &Store,
    keys: MemberKeys<'_>,
    incarnation: &Incarnation,
    hold: Duration,
) -> Result<HeartbeatResult> {
    let call = HEARTBEAT.on(&[keys.live, keys.info]);
    let call = call.arg(&incarnation.0).arg(millis(hold)).arg(store.clock().us());
    read_beat(keys.run(store, call).await?)
}

/// Ends the lease of an incarnation, for a clean stop.
pub async fn leave(store: &Store, keys: MemberKeys<'_>, incarnation: &Incarnation) -> Result<()> {
    keys.run(store, LEAVE.on(&[keys.live]).arg(&incarnation.0)).await.map(drop)
}

/// Lists the live nodes.
pub async fn live(store: &Store, keys: MemberKeys<'_>) -> Result<Vec<Member>> {
    let call = LIVE.on(&[keys.live, keys.info]).arg(store.clock().us());
    let mut reply = keys.run(store, call).await?;
    let mut members = Vec::with_capacity(reply.left() / 2);
    while reply.left() > 0 {
        let (Text(incarnation), Text(node)) = (reply.next()?, reply.next()?);
        members.extend(Incarnation::parse(incarnation).map(|incarnation| Member { incarnation, node }));
    }
    Ok(members)
}

/// Claims at most `most` dead incarnations for `hold`, so that the caller can clean up after them.
pub async fn claim_dead(store: &Store, keys: MemberKeys<'_>, most: u32, hold: Duration) -> Result<Vec<Dead>> {
    let call = CLAIM_DEAD.on(&[keys.live, keys.info, keys.dead]);
    let call = call.arg(most).arg(millis(hold)).arg(store.clock().us());
    let mut reply = keys.run(store, call).await?;
    let mut dead = Vec::with_capacity(reply.left() / 3);
    while reply.left() > 0 {
        let (Text(incarnation), Text(node), claim) = (reply.next()?, reply.next()?, reply.next()?);
        dead.extend(Incarnation::parse(incarnation).map(|incarnation| Dead { incarnation, node, claim }));
    }
    Ok(dead)
}

/// Removes a dead incarnation after the caller has cleaned up after it.
pub async fn remove_dead(store: &Store, keys: MemberKeys<'_>, dead: &Dead) -> Result<Removal> {
    let call = REMOVE_DEAD.on(&[keys.info, keys.dead]).arg(&dead.incarnation.0).arg(dead.claim);
    let reply = keys.run(store, call).await?;
    match reply.word() {
        "removed" => Ok(Removal::Removed),
        "superseded" => Ok(Removal::Superseded),
        _ => Err(reply.unexpected()),
    }
}

fn read_beat(mut reply: Reply) -> Result<HeartbeatResult> {
    match reply.word() {
        "alive" => Ok(HeartbeatResult::Alive { until_unix_ms: reply.next()? }),
        "dead" => Ok(HeartbeatResult::Dead),
        _ => Err(reply.unexpected()),
    }
}
