//! The schedule (U1): who is checked next, and by whom. Claims are leased, fenced and come back by themselves.

pub(crate) mod background;
mod footprint;
mod rebuild;
pub mod record;
pub mod snapshot;
pub mod state;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hob_schema::{Layout, Shard};
use hob_store::epoch::{Epoch, Fence, MARKER, Outcome};
use hob_store::repair::{self, KeyType};
use hob_store::{CLOCK, Call, FromRedisValue, Key, Reply, Script, Store, cmd};

use crate::error::{Error, Result};
use crate::keys::{Keys, MonitorId};
use crate::schedule::state::{LastChange, MonitorHealth};

/// Lua that reads and writes standings; needs [`CLOCK`] and [`MARKER`] before it.
pub(crate) const HEALTH_LUA: &str = include_str!("schedule/health.lua");

static CLAIM: Script = Script::with(&[CLOCK, MARKER, HEALTH_LUA], include_str!("schedule/claim.lua"));
static CLAIM_NOW: Script = Script::with(&[CLOCK, MARKER, HEALTH_LUA], include_str!("schedule/claim_now.lua"));
static PLAN: Script = Script::with(&[CLOCK, MARKER, HEALTH_LUA], include_str!("schedule/plan.lua"));
static NOW: Script = Script::with(&[CLOCK], include_str!("schedule/now.lua"));
static REMOVE: Script = Script::new(include_str!("schedule/remove.lua"));
static RELEASE: Script = Script::with(&[CLOCK, MARKER, HEALTH_LUA], include_str!("schedule/release.lua"));

/// The schedule of all monitors. Clones are handles to the same.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub(crate) store: Store,
    pub(crate) keys: Keys,
    /// The epoch that this node knows each shard to be of.
    epochs: Arc<[AtomicU32]>,
}

/// The right to record one result of a monitor, until another gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub id: MonitorId,
    pub generation: u64,
    pub fence: Fence,
    /// When it was this monitor's turn, in unix milliseconds.
    pub slot_ms: u64,
    /// When it was claimed, by the store's clock.
    pub claimed_ms: u64,
    pub health: MonitorHealth,
    pub last_change: LastChange,
}

/// What a claim for due monitors gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimBatch {
    pub claims: Vec<Claim>,
    /// Ids that somebody had added and that are no monitors.
    pub dropped: Vec<String>,
    /// How long nothing more is due, if it is known; leases may end earlier.
    pub next_due_in: Option<Duration>,
}

/// When and how a monitor is to be checked, as the schedule has to know it.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleEntry<'a> {
    pub id: &'a MonitorId,
    pub generation: u64,
    /// How long a worker has for it.
    pub lease: Duration,
    pub next_ms: u64,
}

/// What planning a monitor did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanOutcome {
    Planned,
    /// It had lost its turn.
    Readded,
    Already,
    /// The schedule knows a later generation.
    Newer,
}

/// Why a monitor leaves the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalReason {
    Paused,
    Deleted,
}

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

    /// The epoch that a shard is known to be of; 0 is before the first.
    pub(crate) fn epoch(&self, shard: Shard) -> u32 {
        self.epochs[shard.number() as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn set_epoch(&self, shard: Shard, epoch: Epoch) {
        self.epochs[shard.number() as usize].fetch_max(epoch.get(), Ordering::Relaxed);
    }

    /// Claims at most `most` monitors of a shard that are due, or that a dead worker left behind.
    pub async fn claim(&self, shard: Shard, most: u32) -> Result<Outcome<ClaimBatch>> {
        let call = CLAIM.on(&self.shard_keys(shard)).arg(self.epoch(shard)).arg(most);
        let reply: Reply = self.run(shard, call.arg(self.store.clock().us())).await?;
        let outcome = Outcome::read(reply, |mut reply| {
            let (now_ms, turn_ms, dropped): (u64, String, usize) =
                (reply.next()?, reply.next()?, reply.next()?);
            let dropped = (0..dropped).map(|_| reply.next()).collect::<hob_store::Result<_>>()?;
            let mut claims = Vec::with_capacity(reply.left() / 3);
            while reply.left() > 0 {
                let id: String = reply.next()?;
                claims.push(claim(&id, now_ms, &mut reply)?);
            }
            let next_due_in =
                turn_ms.parse().ok().map(|entry: u64| Duration::from_millis(entry.saturating_sub(now_ms)));
            Ok(ClaimBatch { claims, dropped, next_due_in })
        });
        Ok(outcome?)
    }

    /// Claims one monitor now, due or not; `None` if it takes no turns.
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

    /// Lets a monitor take its turns, from `next_ms` on unless it has one already.
    pub async fn plan(&self, entry: ScheduleEntry<'_>) -> Result<Outcome<PlanOutcome>> {
        let shard = self.shard_of(entry.id);
        let [schedule, leases, marker, standing, _] = self.shard_keys(shard);
        let call =
            PLAN.on(&[schedule, leases, marker, standing]).arg(self.epoch(shard)).arg(entry.id.as_str());
        let call = call.arg(entry.generation).arg(millis(entry.lease)).arg(entry.next_ms);
        let reply: Reply = self.run(shard, call.arg(MonitorHealth::NEW.to_string())).await?;
        let outcome = Outcome::read(reply, |reply| match reply.word() {
            "planned" => Ok(PlanOutcome::Planned),
            "readded" => Ok(PlanOutcome::Readded),
            "already" => Ok(PlanOutcome::Already),
            "newer" => Ok(PlanOutcome::Newer),
            _ => Err(reply.unexpected()),
        });
        Ok(outcome?)
    }

    /// Takes a monitor's turns away. A check that runs now will not be recorded.
    pub async fn remove(&self, id: &MonitorId, reason: RemovalReason) -> Result<()> {
        let keys = &self.keys;
        let shard = self.shard_of(id);
        let [schedule, leases, _, standing, unsettled] = self.shard_keys(shard);
        let [status, incident, retry] = [keys.status(id), keys.incident(id), keys.retry(id)];
        let call = REMOVE.on(&[schedule, leases, standing, unsettled, status, incident, retry]);
        let word = match reason {
            RemovalReason::Paused => "paused",
            RemovalReason::Deleted => "deleted",
        };
        let reply: Reply = self.run(shard, call.arg(id.as_str()).arg(word)).await?;
        if reply.word() == "removed" { Ok(()) } else { Err(reply.unexpected().into()) }
    }

    /// Gives a claim back without a result, to be taken again at `next_ms`. Too late, it does nothing.
    pub async fn release(&self, claim: &Claim, next_ms: u64) -> Result<()> {
        let shard = self.shard_of(&claim.id);
        let [schedule, leases, marker, standing, _] = self.shard_keys(shard);
        let call = RELEASE.on(&[schedule, leases, marker, standing]).arg(self.epoch(shard));
        let call = call.arg(claim.id.as_str()).arg(claim.fence.get()).arg(next_ms);
        self.run::<Reply>(shard, call).await?;
        Ok(())
    }

    /// The store's time, as a shard has seen it.
    pub async fn now_ms(&self, shard: Shard) -> Result<u64> {
        let call = NOW.on(&[self.keys.marker(shard)]).arg(self.store.clock().us());
        let mut reply: Reply = self.run(shard, call).await?;
        Ok(reply.next()?)
    }

    /// Runs a call on the keys of a shard. Where one of them is of the wrong type the shard is mended, and the call is
    /// run once more.
    pub(crate) async fn run<T: FromRedisValue>(&self, shard: Shard, call: impl Into<Call>) -> Result<T> {
        let call = call.into();
        match self.store.run(call.clone()).await {
            Err(error) if error.is_wrong_type() => {
                self.repair(shard).await?;
                Ok(self.store.run(call).await?)
            }
            answer => Ok(answer?),
        }
    }

    /// Deletes those keys of a shard that are of the wrong type. A turn or a lease that is lost with them comes back with
    /// the next reconciliation. What the others held only the database knows: the shard counts as lost, and is rebuilt.
    pub(crate) async fn repair(&self, shard: Shard) -> Result<()> {
        let [schedule, leases, marker, standing, unsettled] = self.shard_keys(shard);
        let turns = [(schedule, Kind::Zset), (leases, Kind::Zset)];
        mend::mend(&self.store, &turns).await?;
        let next_due_in = [(marker.clone(), Kind::Hash), (standing, Kind::Hash), (unsettled, Kind::Hash)];
        if !mend::mend(&self.store, &next_due_in).await?.is_empty() {
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
    let (text, unsettled): (String, u8) = (reply.next()?, reply.next()?);
    let bad = || hob_store::Error::Reply(format!("the standing of {id} is {text:?}"));
    let mut words = text.splitn(5, ' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (generation, _lease, fence, slot_ms) =
        (|| Some((number()?, number()?, number()?, number()?)))().ok_or_else(bad)?;
    let health = words.next().and_then(|next_due_in| next_due_in.parse().ok()).unwrap_or_else(|| {
        // As after a loss: the result of this claim is written in its place.
        tracing::warn!(monitor = id, "a standing cannot be read");
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
