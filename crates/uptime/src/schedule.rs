//! The schedule (U1): which monitors are due, and which worker holds them. A claim has a lease and a fence; when the
//! lease expires, the monitor can be claimed again.

pub(crate) mod background;
mod memory_usage;
pub(crate) mod rebuild;
mod reconcile;
pub mod record;
pub mod snapshot;
mod span;
pub mod state;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hob_schema::{Layout, Shard};
use hob_store::epoch::{Epoch, Fence, MARKER, Outcome};
use hob_store::repair::{self, KeyType, STORED};
use hob_store::{CLOCK, Call, FromRedisValue, Key, Reply, Script, Store, Text, cmd};

use crate::error::{Error, Result};
use crate::keys::{Keys, MonitorId};
use crate::schedule::state::{LastChange, MonitorHealth};

/// Lua functions on the health of monitors; needs [`CLOCK`] and [`MARKER`] before it.
pub(crate) const HEALTH_LUA: &str = include_str!("schedule/health.lua");

static CLAIM: Script = Script::with(&[CLOCK, MARKER, STORED, HEALTH_LUA], include_str!("schedule/claim.lua"));
static CLAIM_NOW: Script =
    Script::with(&[CLOCK, MARKER, STORED, HEALTH_LUA], include_str!("schedule/claim_now.lua"));
static PLAN: Script = Script::with(&[CLOCK, MARKER, STORED, HEALTH_LUA], include_str!("schedule/plan.lua"));
static NOW: Script = Script::with(&[CLOCK, STORED], include_str!("schedule/now.lua"));
static REMOVE: Script = Script::new(include_str!("schedule/remove.lua"));
static RELEASE: Script =
    Script::with(&[CLOCK, MARKER, STORED, HEALTH_LUA], include_str!("schedule/release.lua"));

/// The schedule of all monitors. Clones share one state.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub(crate) store: Store,
    pub(crate) keys: Keys,
    /// The epoch of each shard, as far as this node knows.
    epochs: Arc<[AtomicU32]>,
}

/// The right to record one result of a monitor, until the monitor is claimed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub id: MonitorId,
    pub generation: u64,
    pub fence: Fence,
    /// When the check was due, in unix milliseconds.
    pub slot_ms: u64,
    /// When it was claimed, by the store's clock.
    pub claimed_ms: u64,
    pub health: MonitorHealth,
    pub last_change: LastChange,
}

/// The result of claiming due monitors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimBatch {
    pub claims: Vec<Claim>,
    /// Ids in the schedule that have no readable entry. Another client has added or changed them.
    pub dropped: Vec<String>,
    /// Time until the next check is due, if known. A lease may expire earlier.
    pub next_due_in: Option<Duration>,
}

/// A monitor as the schedule stores it.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleEntry<'a> {
    pub id: &'a MonitorId,
    pub generation: u64,
    /// How long a claim lasts.
    pub lease: Duration,
    pub next_ms: u64,
    /// Used if the store does not know the monitor.
    pub health: MonitorHealth,
}

/// The outcome of planning a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanOutcome {
    Planned,
    /// It had disappeared from the schedule.
    Readded,
    Already,
    /// The schedule has a later generation.
    Newer,
}

/// Why a monitor leaves the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalReason {
    Paused,
    Deleted,
}

hob_units::names!(RemovalReason { Paused = "paused", Deleted = "deleted" });

impl Schedule {
    pub fn new(store: &Store, layout: Layout) -> Result<Self> {
        let keys = Keys::from_env(layout, &|name| std::env::var(name).ok());
        let keys = keys.map_err(|error| Error::Keys(error.to_string()))?;
        let epochs = keys.space().shards().map(|_| AtomicU32::new(0)).collect();
        Ok(Self { store: store.clone(), keys, epochs })
    }

    pub fn shards(&self) -> impl Iterator<Item = Shard> + use<> {
        self.keys.space().shards()
    }

    #[must_use]
    pub fn shard_of(&self, id: &MonitorId) -> Shard {
        self.keys.space().shard_of(id.as_str())
    }

    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The epoch of a shard, as far as this node knows; 0 if it knows none.
    pub(crate) fn epoch(&self, shard: Shard) -> u32 {
        self.epochs[shard.number() as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn set_epoch(&self, shard: Shard, epoch: Epoch) {
        self.epochs[shard.number() as usize].fetch_max(epoch.get(), Ordering::Relaxed);
    }

    /// Claims up to `limit` monitors of a shard that are due or whose lease has expired.
    pub async fn claim(&self, shard: Shard, limit: u32) -> Result<Outcome<ClaimBatch>> {
        let call = CLAIM.on(&self.shard_keys(shard)).arg(self.epoch(shard)).arg(limit);
        let reply: Reply = self.run(shard, call.arg(self.store.clock().us())).await?;
        let outcome = Outcome::read(reply, |mut reply| {
            let (now_ms, due_ms, dropped): (u64, String, usize) =
                (reply.next()?, reply.next()?, reply.next()?);
            let dropped = (0..dropped).map(|_| reply.next()).collect::<hob_store::Result<Vec<Text>>>()?;
            let mut dropped: Vec<String> = dropped.into_iter().map(|Text(id)| id).collect();
            let mut claims = Vec::with_capacity(reply.left() / 3);
            while reply.left() > 0 {
                let Text(id) = reply.next()?;
                match claim(&id, now_ms, &mut reply) {
                    Ok(claim) => claims.push(claim),
                    // Another client has added it; it must not fail the other claims.
                    Err(_) => dropped.push(id),
                }
            }
            let next_due_in =
                due_ms.parse().ok().map(|due_ms: u64| Duration::from_millis(due_ms.saturating_sub(now_ms)));
            Ok(ClaimBatch { claims, dropped, next_due_in })
        });
        Ok(outcome?)
    }

    /// Claims one monitor now, due or not; `None` if it is not scheduled.
    pub async fn claim_now(&self, id: &MonitorId) -> Result<Outcome<Option<Claim>>> {
        let shard = self.shard_of(id);
        let call = CLAIM_NOW.on(&self.shard_keys(shard)).arg(self.epoch(shard)).arg(id.as_str());
        let reply: Reply = self.run(shard, call.arg(self.store.clock().us())).await?;
        let outcome = Outcome::read(reply, |mut reply| match reply.word() {
            "unknown" => Ok(None),
            "claimed" => {
                let now_ms = reply.next()?;
                claim(id.as_str(), now_ms, &mut reply).map(Some)
            }
            _ => Err(reply.unexpected()),
        });
        Ok(outcome?)
    }

    /// Schedules a monitor from `next_ms` on, unless it is scheduled already.
    pub async fn plan(&self, entry: ScheduleEntry<'_>) -> Result<Outcome<PlanOutcome>> {
        let shard = self.shard_of(entry.id);
        let [schedule, leases, marker, standing, _] = self.shard_keys(shard);
        let call =
            PLAN.on(&[schedule, leases, marker, standing]).arg(self.epoch(shard)).arg(entry.id.as_str());
        let call = call.arg(entry.generation).arg(millis(entry.lease)).arg(entry.next_ms);
        let reply: Reply = self.run(shard, call.arg(entry.health.to_string())).await?;
        let outcome = Outcome::read(reply, |reply| match reply.word() {
            "planned" => Ok(PlanOutcome::Planned),
            "readded" => Ok(PlanOutcome::Readded),
            "already" => Ok(PlanOutcome::Already),
            "newer" => Ok(PlanOutcome::Newer),
            _ => Err(reply.unexpected()),
        });
        Ok(outcome?)
    }

    /// Removes a monitor from the schedule. The result of a check that runs now will be refused.
    pub async fn remove(&self, id: &MonitorId, reason: RemovalReason) -> Result<()> {
        let keys = &self.keys;
        let shard = self.shard_of(id);
        let [schedule, leases, _, standing, unsettled] = self.shard_keys(shard);
        let [status, incident, retry] = [keys.status(id), keys.incident(id), keys.retry(id)];
        let call = REMOVE.on(&[schedule, leases, standing, unsettled, status, incident, retry]);
        let reply: Reply = self.run(shard, call.arg(id.as_str()).arg(reason.as_str())).await?;
        if reply.word() == "removed" { Ok(()) } else { Err(reply.unexpected().into()) }
    }

    /// Releases a claim without a result; the monitor is due at `next_ms`. Does nothing if the claim has expired.
    pub async fn release(&self, claim: &Claim, next_ms: u64) -> Result<()> {
        let shard = self.shard_of(&claim.id);
        let [schedule, leases, marker, standing, _] = self.shard_keys(shard);
        let call = RELEASE.on(&[schedule, leases, marker, standing]).arg(self.epoch(shard));
        let call = call.arg(claim.id.as_str()).arg(claim.fence.get()).arg(next_ms);
        self.run::<Reply>(shard, call).await?;
        Ok(())
    }

    /// The store's time, never earlier than the shard has seen.
    pub async fn now_ms(&self, shard: Shard) -> Result<u64> {
        let call = NOW.on(&[self.keys.marker(shard)]).arg(self.store.clock().us());
        let mut reply: Reply = self.run(shard, call).await?;
        Ok(reply.next()?)
    }

    /// Runs a call on the keys of a shard. If another client has changed one of them, repairs the shard and runs the call
    /// again.
    pub(crate) async fn run<T: FromRedisValue>(&self, shard: Shard, call: impl Into<Call>) -> Result<T> {
        repair::run_with(&self.store, call, async |error| self.repair(shard, &error).await).await
    }

    /// Deletes the keys of a shard that another client has changed. Reconciliation restores the schedule and the leases.
    /// The other keys can only be restored from the database, so the shard is marked as lost and rebuilt.
    pub(crate) async fn repair(&self, shard: Shard, error: &hob_store::Error) -> Result<()> {
        let [schedule, leases, marker, standing, unsettled] = self.shard_keys(shard);
        if !error.is_wrong_type() {
            // Scripts check every other value that they read.
            repair::repair(&self.store, error, &[(marker, KeyType::Hash)]).await?;
            return Ok(());
        }
        let queues = [(schedule, KeyType::Zset), (leases, KeyType::Zset)];
        repair::repair(&self.store, error, &queues).await?;
        let others = [(marker.clone(), KeyType::Hash), (standing, KeyType::Hash), (unsettled, KeyType::Hash)];
        if !repair::repair(&self.store, error, &others).await?.is_empty() {
            self.store.run::<u64>(cmd("DEL").arg(marker)).await?;
        }
        Ok(())
    }

    /// Schedule, leases, marker, standing, unsettled.
    pub(crate) fn shard_keys(&self, shard: Shard) -> [Key; 5] {
        let keys = &self.keys;
        [
            keys.schedule(shard),
            keys.leases(shard),
            keys.marker(shard),
            keys.standing(shard),
            keys.unsettled(shard),
        ]
    }
}

fn claim(id: &str, claimed_ms: u64, reply: &mut Reply) -> hob_store::Result<Claim> {
    let (Text(text), unsettled): (_, u8) = (reply.next()?, reply.next()?);
    let bad = || hob_store::Error::Reply(format!("unreadable health of monitor {id}: {text:?}"));
    let mut words = text.splitn(5, ' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (generation, _lease, fence, slot_ms) =
        (|| Some((number()?, number()?, number()?, number()?)))().ok_or_else(bad)?;
    let health = words.next().and_then(|next_due_in| next_due_in.parse().ok()).unwrap_or_else(|| {
        // Continue as after a loss: the result of this claim replaces it.
        tracing::warn!(monitor = id, "stored health of a monitor is unreadable, resetting it");
        MonitorHealth::NEW
    });
    Ok(Claim {
        id: MonitorId::new(id).map_err(|_| bad())?,
        generation,
        fence: Fence::from_u64(fence),
        slot_ms,
        claimed_ms,
        health,
        last_change: if unsettled == 0 { LastChange::Saved } else { LastChange::Pending },
    })
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
