//! Node membership: each node holds a lease under an incarnation that is random per boot; survivors sweep
//! what dead incarnations left behind, at least once each and never two at a time for long.

use std::fmt;
use std::time::Duration;

use crate::clock::CLOCK;
use crate::clock::millis;
use crate::error::Result;
use crate::reply::Reply;
use crate::script::Script;
use crate::store::Store;

const NOW: &str = include_str!("members/clock.lua");

static JOIN: Script = Script::with(&[CLOCK, NOW], include_str!("members/join.lua"));
static BEAT: Script = Script::with(&[CLOCK, NOW], include_str!("members/beat.lua"));
static LEAVE: Script = Script::new(include_str!("members/leave.lua"));
static LIVE: Script = Script::with(&[CLOCK, NOW], include_str!("members/live.lua"));
static SWEEP: Script = Script::with(&[CLOCK, NOW], include_str!("members/sweep.lua"));
static SWEPT: Script = Script::new(include_str!("members/swept.lua"));

/// Where the members of one group are kept, all in one slot.
#[derive(Clone, Copy, Debug)]
pub struct MemberKeys<'a> {
    /// Sorted set of live incarnations by the end of their lease.
    pub live: &'a [u8],
    /// Hash of node names by incarnation.
    pub info: &'a [u8],
    /// Sorted set of dead incarnations by the end of the claim to sweep them.
    pub dead: &'a [u8],
}

/// One life of a node, random, so that a restarted node is never taken for its former self.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(String);

impl Incarnation {
    /// A new one: 128 random bits.
    #[must_use]
    pub fn random() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()))
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
    /// Its present life.
    pub incarnation: Incarnation,
    /// Its name.
    pub node: String,
}

/// A dead node that the caller is to sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead {
    /// The life that ended.
    pub incarnation: Incarnation,
    /// The node's name.
    pub node: String,
    /// To be given to [`swept`].
    pub claim: u64,
}

/// What a beat gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// The incarnation is live.
    Alive {
        /// Until then by the store's clock, in Unix milliseconds, unless it beats again.
        until_unix_ms: u64,
    },
    /// It is dead: the node joins again as a new incarnation and publishes its state anew.
    Dead,
}

/// What reporting a dead incarnation swept gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swept {
    /// It is forgotten.
    Forgotten,
    /// The claim's time was up and another sweeper has it, or is done with it.
    Superseded,
}

/// Counts a new incarnation of `node` as live for `hold`.
pub async fn join(
    store: &Store,
    keys: MemberKeys<'_>,
    incarnation: &Incarnation,
    node: &str,
    hold: Duration,
) -> Result<Beat> {
    let call = JOIN.on(&[keys.live, keys.info]);
    let call = call.arg(&incarnation.0).arg(node).arg(millis(hold)).arg(store.clock().us());
    read_beat(store.run(call).await?)
}

/// Keeps an incarnation live for `hold` from now on.
pub async fn beat(
    store: &Store,
    keys: MemberKeys<'_>,
    incarnation: &Incarnation,
    hold: Duration,
) -> Result<Beat> {
    let call = BEAT.on(&[keys.live, keys.info]);
    read_beat(store.run(call.arg(&incarnation.0).arg(millis(hold)).arg(store.clock().us())).await?)
}

/// Ends an incarnation at once, for a clean stop.
pub async fn leave(store: &Store, keys: MemberKeys<'_>, incarnation: &Incarnation) -> Result<()> {
    store.run::<Reply>(LEAVE.on(&[keys.live]).arg(&incarnation.0)).await.map(drop)
}

/// Lists who is live.
pub async fn live(store: &Store, keys: MemberKeys<'_>) -> Result<Vec<Member>> {
    let mut reply: Reply = store.run(LIVE.on(&[keys.live, keys.info]).arg(store.clock().us())).await?;
    let mut members = Vec::with_capacity(reply.left() / 2);
    while reply.left() > 0 {
        members.push(Member { incarnation: Incarnation(reply.next()?), node: reply.next()? });
    }
    Ok(members)
}

/// Claims at most `most` dead incarnations for `hold`: their traces are this caller's to sweep.
pub async fn sweep(store: &Store, keys: MemberKeys<'_>, most: u32, hold: Duration) -> Result<Vec<Dead>> {
    let call = SWEEP.on(&[keys.live, keys.info, keys.dead]);
    let mut reply: Reply = store.run(call.arg(most).arg(millis(hold)).arg(store.clock().us())).await?;
    let mut dead = Vec::with_capacity(reply.left() / 3);
    while reply.left() > 0 {
        dead.push(Dead {
            incarnation: Incarnation(reply.next()?),
            node: reply.next()?,
            claim: reply.next()?,
        });
    }
    Ok(dead)
}

/// Reports a dead incarnation swept.
pub async fn swept(store: &Store, keys: MemberKeys<'_>, dead: &Dead) -> Result<Swept> {
    let call = SWEPT.on(&[keys.info, keys.dead]).arg(&dead.incarnation.0).arg(dead.claim);
    let reply: Reply = store.run(call).await?;
    match reply.word() {
        "forgotten" => Ok(Swept::Forgotten),
        "superseded" => Ok(Swept::Superseded),
        _ => Err(reply.unexpected()),
    }
}

fn read_beat(mut reply: Reply) -> Result<Beat> {
    match reply.word() {
        "alive" => Ok(Beat::Alive { until_unix_ms: reply.next()? }),
        "dead" => Ok(Beat::Dead),
        _ => Err(reply.unexpected()),
    }
}
