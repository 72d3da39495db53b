//! Leases: one holder at a time, until a stored deadline, with a fence that refuses its late writes.
//!
//! A holder's write goes through a script of its own, made with `Script::with(&[CLOCK, HOLDS], …)`, that
//! begins with `if not holds(KEYS[1], ARGV[1], ARGV[2]) then return {'over'} end`.

use std::time::Duration;

use crate::clock::CLOCK;
use crate::epoch::{Epoch, Fence, MARKER, Outcome};
use crate::error::Result;
use crate::reply::Reply;
use crate::script::Script;
use crate::store::Store;

/// Lua that declares `holds(lease, fence, given)`; needs [`CLOCK`] before it.
pub const HOLDS: &str = include_str!("lease/holds.lua");

static TAKE: Script = Script::with(&[CLOCK, MARKER, HOLDS], include_str!("lease/take.lua"));
static RENEW: Script = Script::with(&[CLOCK, HOLDS], include_str!("lease/renew.lua"));
static RELEASE: Script = Script::with(&[CLOCK, HOLDS], include_str!("lease/release.lua"));
static CHECK: Script = Script::with(&[CLOCK, HOLDS], include_str!("lease/check.lua"));

/// Where a lease lives: its own hash and the marker of its tag, in one slot.
#[derive(Clone, Copy, Debug)]
pub struct LeaseKeys<'a> {
    /// The lease's hash.
    pub lease: &'a [u8],
    /// The marker of the tag that the lease belongs to.
    pub marker: &'a [u8],
}

/// What asking for a lease gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Take {
    /// The lease is the caller's.
    Taken(Lease),
    /// Another holds it.
    Held {
        /// Who.
        owner: String,
        /// For how long, unless renewed.
        left: Duration,
    },
}

/// A lease that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// To be carried by every write that depends on the lease.
    pub fence: Fence,
    /// When it is over by the store's clock, in Unix milliseconds.
    pub until_unix_ms: u64,
}

/// Whether a holder still is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It is.
    Holds,
    /// Its time was up, or it gave the lease back, or the store lost it.
    Over,
}

/// Takes a lease for `hold`. `owner` must be this holder's alone, such as an incarnation: the same owner
/// may repeat a call that got no answer and gets the same fence.
pub async fn take(
    store: &Store,
    keys: LeaseKeys<'_>,
    owner: &str,
    hold: Duration,
    epoch: Epoch,
) -> Result<Outcome<Take>> {
    let call = TAKE.on(&[keys.lease, keys.marker]);
    let call = call.arg(owner).arg(millis(hold)).arg(epoch.get()).arg(store.clock().us());
    Outcome::read(store.run(call).await?, |mut reply| match reply.word() {
        "taken" => {
            let fence = Fence::from_u64(reply.next()?);
            Ok(Take::Taken(Lease { fence, until_unix_ms: reply.next()? }))
        }
        "held" => Ok(Take::Held { owner: reply.next()?, left: Duration::from_millis(reply.next()?) }),
        _ => Err(reply.unexpected()),
    })
}

/// Holds a lease for `hold` from now on; `None` when it is over.
pub async fn renew(
    store: &Store,
    lease: impl AsRef<[u8]>,
    fence: Fence,
    hold: Duration,
) -> Result<Option<Lease>> {
    let call = RENEW.on(&[lease]).arg(fence.get()).arg(millis(hold)).arg(store.clock().us());
    let mut reply: Reply = store.run(call).await?;
    match reply.word() {
        "renewed" => Ok(Some(Lease { fence, until_unix_ms: reply.next()? })),
        "over" => Ok(None),
        _ => Err(reply.unexpected()),
    }
}

/// Gives a lease back; [`Hold::Over`] when there was nothing left to give.
pub async fn release(store: &Store, lease: impl AsRef<[u8]>, fence: Fence) -> Result<Hold> {
    let reply: Reply = store.run(RELEASE.on(&[lease]).arg(fence.get()).arg(store.clock().us())).await?;
    match reply.word() {
        "released" => Ok(Hold::Holds),
        "over" => Ok(Hold::Over),
        _ => Err(reply.unexpected()),
    }
}

/// Whether a fence still holds its lease.
pub async fn check(store: &Store, lease: impl AsRef<[u8]>, fence: Fence) -> Result<Hold> {
    let reply: Reply = store.run(CHECK.on(&[lease]).arg(fence.get()).arg(store.clock().us())).await?;
    match reply.word() {
        "holds" => Ok(Hold::Holds),
        "over" => Ok(Hold::Over),
        _ => Err(reply.unexpected()),
    }
}

/// A duration as a script argument, never zero: a lease that is over when it is taken helps nobody.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).clamp(1, 1 << 42)
}
