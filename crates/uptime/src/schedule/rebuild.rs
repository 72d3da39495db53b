//! Rebuilds a lost store from the database, shard by shard. Monitors with an open incident are down again, all others are
//! pending until their first check. The first checks are spread over one interval. The deadline of a heartbeat follows from
//! the last call of its job, which is in the database.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use hob_database::{Database, UnixMs};
use hob_schema::Shard;
use hob_store::epoch::{self, Epoch, MARKER, Progress, Rebuild, Recovery};
use hob_store::repair::STORED;
use hob_store::{CLOCK, Reply, Script};

use crate::database::{incidents, monitors};
use crate::error::{Error, Result};
use crate::incident::Incident;
use crate::keys::MonitorId;
use crate::monitor::Monitor;
use crate::monitor::check::Check;
use crate::schedule::state::{MonitorHealth, MonitorState};
use crate::schedule::{HEALTH_LUA, Schedule, millis};

static RESTORE: Script =
    Script::with(&[CLOCK, MARKER, STORED, HEALTH_LUA], include_str!("rebuild/restore.lua"));

/// Monitors of one call: a long script blocks all other clients.
const BATCH: usize = 200;

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
        let [schedule, leases, marker, standing, _] = self.shard_keys(shard);
        let source = ShardSource { schedule: self, database, shard, grace };
        match epoch::rebuild(&self.store, marker, &[schedule, leases, standing], &source).await? {
            Recovery::Rebuilt(epoch) => {
                self.set_epoch(shard, epoch);
                tracing::info!(shard = shard.number(), %epoch, "schedule shard rebuilt");
            }
            Recovery::Adopted(epoch) => self.set_epoch(shard, epoch),
            // The next call on the shard finds it lost and tries again.
            Recovery::Interrupted => {}
        }
        Ok(())
    }
}

/// The monitors of one shard in the database.
struct ShardSource<'a> {
    schedule: &'a Schedule,
    database: &'a Database,
    shard: Shard,
    grace: Duration,
}

impl Rebuild for ShardSource<'_> {
    type Error = Error;

    /// The database has one epoch for all shards, so a shard may be in any that this node has not seen lost.
    async fn valid_epochs(&self) -> Result<RangeInclusive<Epoch>> {
        Ok(Epoch::new(self.schedule.epoch(self.shard))?..=Epoch::MAX)
    }

    /// An epoch that no shard has had, so that no fence is used twice. If several nodes raise it, the first to begin
    /// rebuilds the shard, and the others help.
    async fn raise_epoch(&self, lost: Epoch) -> Result<Option<Epoch>> {
        Ok(Some(Epoch::new(self.database.raise_epoch(lost.get(), Epoch::MAX.get()).await?)?))
    }

    async fn restore(&self, epoch: Epoch) -> Result<Progress> {
        let Self { schedule, database, shard, grace } = *self;
        let monitors = monitors::all(database).await?;
        let down = incidents::all_open(database).await?;
        let down: HashMap<&MonitorId, &Incident> = down.iter().map(|open| (&open.monitor_id, open)).collect();
        let mine = |monitor: &&Monitor| !monitor.spec.paused && schedule.shard_of(&monitor.id) == shard;
        let monitors: Vec<&Monitor> = monitors.iter().filter(mine).collect();
        let now_ms = schedule.now_ms(shard).await?;
        for batch in monitors.chunks(BATCH) {
            let [due, _, marker, standing, _] = schedule.shard_keys(shard);
            let incidents = batch.iter().map(|monitor| schedule.keys.incident(&monitor.id));
            let keys: Vec<_> = [due, marker, standing].into_iter().chain(incidents).collect();
            let mut call = RESTORE.on(&keys).arg(epoch.get());
            let heartbeats = batch.iter().filter(|monitor| matches!(monitor.check, Check::Heartbeat(_)));
            let heartbeats: Vec<MonitorId> = heartbeats.map(|monitor| monitor.id.clone()).collect();
            let waiting_since = monitors::waiting_since(database, &heartbeats).await?;
            for monitor in batch {
                let open = down.get(&monitor.id).copied();
                let (health, next_ms) = match (open, &monitor.check, waiting_since.get(&monitor.id)) {
                    (None, Check::Heartbeat(heartbeat), Some(since)) => {
                        let since_ms = unix_u64(*since);
                        heartbeat.after_silence(monitor.interval(), since_ms, now_ms, monitor.spec.retries)
                    }
                    _ => {
                        let health = open.map_or(MonitorHealth::NEW, health_of);
                        (health, monitor.next_ms(&health, now_ms))
                    }
                };
                let lease_ms = millis(monitor.timeout() + grace);
                let text = format!("{} {lease_ms} 0 {next_ms} {health}", monitor.generation);
                let failures = open.map(|open| open.failures.max(1).to_string()).unwrap_or_default();
                call = call.arg(monitor.id.as_str()).arg(text).arg(next_ms).arg(failures);
                call = call.arg(health.first_failure_ms / 1000).arg(health.last_failure_ms / 1000);
                call = call.arg(u8::from(open.is_some_and(|open| open.told_at.is_some())));
            }
            let reply: Reply = schedule.run(shard, call).await?;
            if Progress::read(&reply, "restored")? == Progress::Superseded {
                return Ok(Progress::Superseded);
            }
        }
        Ok(Progress::Complete)
    }
}

/// The health of a monitor with an open incident.
pub(crate) fn health_of(open: &Incident) -> MonitorHealth {
    MonitorHealth {
        state: MonitorState::Down,
        failures: open.failures.max(1),
        successes: 0,
        first_failure_ms: unix_u64(open.opened_at),
        last_failure_ms: unix_u64(open.confirmed_at),
        last_ms: unix_u64(open.confirmed_at),
    }
}

pub(super) fn unix_u64(time: UnixMs) -> u64 {
    u64::try_from(time.0).unwrap_or(0)
}
