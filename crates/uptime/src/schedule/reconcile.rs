//! Reconciles the store with the database. The schedule has exactly the active monitors, and a monitor is down exactly
//! while it has an open incident. A store that contradicts the incidents has gone back in time, for example after a
//! failover that lost writes; its shard is rebuilt like a lost one, in a new epoch, so that no fence is used twice.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use hob_database::Database;
use hob_schema::Shard;
use hob_store::epoch::{self, Epoch, MARKER, Outcome};
use hob_store::{Reply, Script, Text, cmd};

use crate::database::{incidents, monitors};
use crate::error::{Error, Result};
use crate::keys::MonitorId;
use crate::schedule::state::MonitorHealth;
use crate::schedule::{RemovalReason, Schedule};
use crate::uptime::Uptime;

static INSPECT: Script = Script::with(&[MARKER], include_str!("reconcile/inspect.lua"));

/// Monitors of one call: a long script blocks all other clients.
const BATCH: usize = 500;

/// Makes the schedule match the database: exactly the active monitors are scheduled (U1).
pub(crate) async fn reconcile(uptime: &Uptime) -> Result<()> {
    uptime.inner.cache.refresh().await?;
    let monitors = uptime.monitors();
    let grace = uptime.config().grace.get();
    for shard in uptime.schedule().shards() {
        let contents = shard_contents(uptime, shard).await?;
        let mine = monitors.iter().filter(|monitor| uptime.schedule().shard_of(&monitor.id) == shard);
        for monitor in mine.clone().filter(|monitor| !monitor.spec.paused) {
            let id = monitor.id.as_str();
            let is_old =
                contents.generations.get(id).is_none_or(|generation| *generation < monitor.generation);
            if is_old || !contents.scheduled.contains(id) {
                uptime.plan(monitor).await?;
            }
        }
        let active: HashSet<&str> =
            mine.filter(|monitor| !monitor.spec.paused).map(|monitor| monitor.id.as_str()).collect();
        for id in contents.generations.keys().filter(|id| !active.contains(id.as_str())) {
            let Ok(id) = MonitorId::new(id) else { continue };
            // It may have been added since the monitors were read.
            let reason = match monitors::by_id(uptime.database(), &id).await? {
                Some(monitor) if monitor.spec.paused => RemovalReason::Paused,
                Some(_) => continue,
                None => RemovalReason::Deleted,
            };
            uptime.schedule().remove(&id, reason).await?;
        }
        uptime.schedule().reconcile_states(uptime.database(), shard, &contents.down, grace).await?;
    }
    Ok(())
}

/// The monitors of a shard.
struct ShardContents {
    /// Generations by id.
    generations: HashMap<String, u64>,
    /// Monitors that are down.
    down: Vec<MonitorId>,
    /// Monitors that are scheduled or being checked.
    scheduled: HashSet<String>,
}

async fn shard_contents(uptime: &Uptime, shard: Shard) -> Result<ShardContents> {
    let all = uptime.schedule();
    let [schedule, leases, _, standing, _] = all.shard_keys(shard);
    let health: Vec<(Text, Text)> = all.run(shard, cmd("HGETALL").arg(&standing)).await?;
    let down = health.iter().filter(|(_, Text(text))| Standing::read(text).is_down());
    let down = down.filter_map(|(Text(id), _)| MonitorId::new(id).ok()).collect();
    let generation = |(Text(id), Text(text)): (Text, Text)| (id, Standing::read(&text).generation);
    let generations = health.into_iter().map(generation).collect();
    // A monitor that is claimed between the two reads is missed and planned again, which has no effect.
    let leased: Vec<Text> = all.run(shard, cmd("ZRANGE").arg(&leases).arg(0).arg(-1)).await?;
    let due: Vec<Text> = all.run(shard, cmd("ZRANGE").arg(&schedule).arg(0).arg(-1)).await?;
    let scheduled = leased.into_iter().chain(due).map(|Text(id)| id).collect();
    Ok(ShardContents { generations, down, scheduled })
}

/// What the store has of a monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Standing {
    generation: u64,
    /// `None` if the store does not know the monitor, or cannot read its health.
    health: Option<MonitorHealth>,
    /// As stored. Each claim and each result changes it.
    text: String,
}

impl Standing {
    fn read(text: &str) -> Self {
        let mut words = text.splitn(5, ' ');
        let generation = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let health = words.nth(3).and_then(|health| health.parse().ok());
        Self { generation, health, text: text.to_owned() }
    }

    fn is_down(&self) -> bool {
        self.health.is_some_and(|health| health.is_down())
    }
}

impl Schedule {
    /// Rebuilds the shards in which a monitor with an open incident is not down.
    pub async fn reconcile_incidents(&self, database: &Database, grace: Duration) -> Result<()> {
        let mut by_shard: HashMap<u32, Vec<MonitorId>> = HashMap::new();
        for open in incidents::all_open(database).await? {
            by_shard.entry(self.shard_of(&open.monitor_id).number()).or_default().push(open.monitor_id);
        }
        for shard in self.shards() {
            if let Some(monitors) = by_shard.get(&shard.number()) {
                self.reconcile_states(database, shard, monitors, grace).await?;
            }
        }
        Ok(())
    }

    /// Rebuilds a shard if one of these monitors is down without an open incident, or has one and is not down.
    pub async fn reconcile_states(
        &self,
        database: &Database,
        shard: Shard,
        monitors: &[MonitorId],
        grace: Duration,
    ) -> Result<()> {
        for monitors in monitors.chunks(BATCH) {
            let Some(monitor) = self.contradiction(database, shard, monitors).await? else { continue };
            tracing::warn!(
                shard = shard.number(), %monitor,
                "monitor state contradicts the database, rebuilding the shard"
            );
            let epoch = Epoch::new(self.epoch(shard))?;
            self.run::<Reply>(shard, epoch::discard(&self.keys.marker(shard), epoch)).await?;
            return self.rebuild(database, shard, grace).await;
        }
        Ok(())
    }

    /// A monitor whose state contradicts the database. The store is read before and after the database: a monitor that
    /// was not claimed in between, and has no pending change, had this state when the incidents were read.
    async fn contradiction(
        &self,
        database: &Database,
        shard: Shard,
        monitors: &[MonitorId],
    ) -> Result<Option<MonitorId>> {
        let Some(before) = self.inspect(shard, monitors).await? else { return Ok(None) };
        let open = incidents::open_among(database, monitors).await?;
        let suspects: Vec<MonitorId> = monitors
            .iter()
            .filter(|id| before.get(*id).is_some_and(|standing| standing.is_down() != open.contains(*id)))
            .cloned()
            .collect();
        if suspects.is_empty() {
            return Ok(None);
        }
        let Some(after) = self.inspect(shard, &suspects).await? else { return Ok(None) };
        for id in suspects {
            let Some(standing) = before.get(&id).filter(|standing| after.get(&id) == Some(standing)) else {
                continue;
            };
            // Pausing resolves an incident before the monitor leaves the schedule, and raises the generation.
            let is_current = match monitors::by_id(database, &id).await {
                Ok(Some(monitor)) if monitor.spec.paused => false,
                Ok(Some(monitor)) => standing.text.is_empty() || monitor.generation == standing.generation,
                Ok(None) | Err(Error::Unreadable(_)) => false,
                Err(error) => return Err(error),
            };
            if is_current {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Monitors without a pending change. `None` if the shard is lost; the next claim rebuilds it.
    async fn inspect(
        &self,
        shard: Shard,
        monitors: &[MonitorId],
    ) -> Result<Option<HashMap<MonitorId, Standing>>> {
        let [_, _, marker, standing, unsettled] = self.shard_keys(shard);
        let call = INSPECT.on(&[marker, standing, unsettled]).arg(self.epoch(shard));
        let call = monitors.iter().fold(call, |call, id| call.arg(id.as_str()));
        let reply: Reply = self.run(shard, call).await?;
        let inspected = Outcome::read(reply, |mut reply| {
            let mut settled = HashMap::with_capacity(monitors.len());
            for id in monitors {
                let (Text(text), pending): (_, u8) = (reply.next()?, reply.next()?);
                if pending == 0 {
                    settled.insert(id.clone(), Standing::read(&text));
                }
            }
            Ok(settled)
        })?;
        match inspected {
            Outcome::Done(settled) => Ok(Some(settled)),
            Outcome::Lost { .. } => Ok(None),
        }
    }
}
