//! Rebuilds a lost store from the database, shard by shard. Monitors with an open incident are down again, all others are
//! pending until their first check. The first checks are spread over one interval.

use std::collections::HashMap;
use std::time::Duration;

use hob_database::Database;
use hob_schema::Shard;
use hob_store::epoch::{Epoch, MARKER};
use hob_store::{CLOCK, Reply, Script};

use crate::database::{incidents, monitors};
use crate::error::Result;
use crate::incident::Incident;
use crate::keys::MonitorId;
use crate::monitor::Monitor;
use crate::schedule::state::{MonitorHealth, MonitorState};
use crate::schedule::{HEALTH_LUA, Schedule, millis};

static PREPARE: Script = Script::with(&[CLOCK], include_str!("rebuild/prepare.lua"));
static RESTORE: Script = Script::with(&[CLOCK, MARKER, HEALTH_LUA], include_str!("rebuild/restore.lua"));
static FINISH: Script = Script::new(include_str!("rebuild/finish.lua"));

/// Nodes that rebuild the same shard may interrupt each other a few times.
const ATTEMPTS: usize = 5;
/// Monitors of one call: a long script blocks all other clients.
const BATCH: usize = 200;

/// The progress of a rebuild.
enum Prepared {
    /// The shard has been rebuilt in this epoch.
    Done(Epoch),
    /// A node is rebuilding the shard in this epoch.
    InProgress(Epoch),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Restored {
    All,
    /// Another epoch has replaced it, or the shard was lost again.
    Superseded,
}

impl Schedule {
    /// Reads the epochs of all shards, and rebuilds the shards that are lost.
    pub async fn open(&self, database: &Database, grace: Duration) -> Result<()> {
        for shard in self.shards() {
            self.rebuild(database, shard, grace).await?;
        }
        Ok(())
    }

    /// Rebuilds a lost shard, helps another node to do so, or adopts the epoch of a shard that has been rebuilt.
    pub async fn rebuild(&self, database: &Database, shard: Shard, grace: Duration) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let epoch = match self.prepare(database, shard).await? {
                Prepared::Done(epoch) => {
                    self.set_epoch(shard, epoch);
                    return Ok(());
                }
                Prepared::InProgress(epoch) => epoch,
            };
            if self.restore(database, shard, epoch, grace).await? == Restored::All
                && self.finish_rebuild(shard, epoch).await? == Restored::All
            {
                self.set_epoch(shard, epoch);
                tracing::info!(shard = shard.number(), %epoch, "shard rebuilt");
                return Ok(());
            }
        }
        // The next call on the shard finds it lost and tries again.
        Ok(())
    }

    /// Joins a rebuild, or starts one in an epoch that no shard has had, so that no fence is used twice.
    async fn prepare(&self, database: &Database, shard: Shard) -> Result<Prepared> {
        if let Some(prepared) = self.try_prepare(shard, None).await? {
            return Ok(prepared);
        }
        let known = database.epoch().await?.max(self.epoch(shard));
        let raised = Epoch::new(database.raise_epoch(known, Epoch::MAX.get()).await?)?;
        let prepared = self.try_prepare(shard, Some(raised)).await?;
        Ok(prepared.unwrap_or(Prepared::InProgress(raised)))
    }

    async fn try_prepare(&self, shard: Shard, epoch: Option<Epoch>) -> Result<Option<Prepared>> {
        let [schedule, leases, marker, standing, _] = self.shard_keys(shard);
        let call = PREPARE.on(&[schedule, leases, marker, standing]).arg(self.epoch(shard));
        let epoch = epoch.map(|epoch| epoch.to_string()).unwrap_or_default();
        let mut reply: Reply = self.run(shard, call.arg(epoch)).await?;
        match reply.word() {
            "done" => Ok(Some(Prepared::Done(Epoch::new(reply.next()?)?))),
            "rebuilding" => Ok(Some(Prepared::InProgress(Epoch::new(reply.next()?)?))),
            "lost" => Ok(None),
            _ => Err(reply.unexpected().into()),
        }
    }

    async fn finish_rebuild(&self, shard: Shard, epoch: Epoch) -> Result<Restored> {
        let call = FINISH.on(&[self.keys.marker(shard)]).arg(epoch.get());
        let reply: Reply = self.run(shard, call).await?;
        Ok(if reply.word() == "finished" { Restored::All } else { Restored::Superseded })
    }

    async fn restore(
        &self,
        database: &Database,
        shard: Shard,
        epoch: Epoch,
        grace: Duration,
    ) -> Result<Restored> {
        let monitors = monitors::all(database).await?;
        let down = incidents::all_open(database).await?;
        let down: HashMap<&MonitorId, &Incident> = down.iter().map(|open| (&open.monitor_id, open)).collect();
        let mine = |monitor: &&Monitor| !monitor.spec.paused && self.shard_of(&monitor.id) == shard;
        let monitors: Vec<&Monitor> = monitors.iter().filter(mine).collect();
        let now_ms = self.now_ms(shard).await?;
        for batch in monitors.chunks(BATCH) {
            let [schedule, _, marker, standing, _] = self.shard_keys(shard);
            let incidents = batch.iter().map(|monitor| self.keys.incident(&monitor.id));
            let keys: Vec<_> = [schedule, marker, standing].into_iter().chain(incidents).collect();
            let mut call = RESTORE.on(&keys).arg(epoch.get());
            for monitor in batch {
                let open = down.get(&monitor.id).copied();
                let health = open.map_or(MonitorHealth::NEW, health_of);
                let (lease_ms, next_ms) =
                    (millis(monitor.timeout() + grace), monitor.next_ms(&health, now_ms));
                let text = format!("{} {lease_ms} 0 {next_ms} {health}", monitor.generation);
                let failures = open.map(|open| open.failures.max(1).to_string()).unwrap_or_default();
                call = call.arg(monitor.id.as_str()).arg(text).arg(next_ms).arg(failures);
                call = call.arg(health.first_failure_ms / 1000).arg(health.last_failure_ms / 1000);
                call = call.arg(u8::from(open.is_some_and(|open| open.told_at.is_some())));
            }
            let reply: Reply = self.run(shard, call).await?;
            if reply.word() == "superseded" {
                return Ok(Restored::Superseded);
            }
        }
        Ok(Restored::All)
    }
}

/// The health of a monitor with an open incident.
fn health_of(open: &Incident) -> MonitorHealth {
    let ms = |time: hob_database::UnixMs| u64::try_from(time.0).unwrap_or(0);
    MonitorHealth {
        state: MonitorState::Down,
        failures: open.failures.max(1),
        successes: 0,
        first_failure_ms: ms(open.opened_at),
        last_failure_ms: ms(open.confirmed_at),
        last_ms: ms(open.confirmed_at),
    }
}
