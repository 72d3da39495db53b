//! Hot state that was lost comes back from the records, shard by shard: everybody who was down is down, nobody is up
//! before a check says so, and the first checks are spread over one interval by the monitors' own grids.

use std::collections::HashMap;
use std::time::Duration;

use hob_hot::epoch::{self, Epoch, MARKER, Mark};
use hob_hot::{CLOCK, Reply, Script};
use hob_records::Records;
use hob_schema::Shard;

use crate::error::Result;
use crate::incident::{self, Incident};
use crate::keys::MonitorId;
use crate::monitor::{self, Monitor};
use crate::schedule::{STANDING, Schedule, millis};
use crate::state::{Standing, State};

static PREPARE: Script = Script::with(&[CLOCK], include_str!("rebuild/prepare.lua"));
static RESTORE: Script = Script::with(&[CLOCK, MARKER, STANDING], include_str!("rebuild/restore.lua"));

/// Monitors of one call: a script that takes long keeps everybody else waiting.
const BATCH: usize = 200;

impl Schedule {
    /// Takes up the shards as they are in the store, and rebuilds those that are not there.
    pub async fn open(&self, records: &Records, grace: Duration) -> Result<()> {
        for shard in self.shards() {
            let marked: Option<u32> =
                self.hot.run(hob_hot::cmd("HGET").arg(self.keys.marker(shard)).arg("epoch")).await?;
            match marked {
                Some(number) => self.set_epoch(shard, Epoch::new(number)?),
                None => self.rebuild(records, shard, None, grace).await?,
            }
        }
        Ok(())
    }

    /// Rebuilds a shard that was found lost, or takes up what another node has rebuilt.
    pub async fn rebuild(
        &self,
        records: &Records,
        shard: Shard,
        found: Option<Epoch>,
        grace: Duration,
    ) -> Result<()> {
        if let Some(found) = found.filter(|found| found.get() > self.epoch(shard)) {
            self.set_epoch(shard, found);
            return Ok(());
        }
        let known = records.epoch().await?.0.max(self.epoch(shard));
        let raised = records.raise_epoch(hob_records::Epoch(known)).await?;
        let epoch = Epoch::new(raised.0)?;
        let [schedule, leases, marker, standing, _] = self.shard_keys(shard);
        let call = PREPARE.on(&[schedule, leases, marker.clone(), standing]).arg(epoch.get());
        let mut reply: Reply = self.hot.run(call).await?;
        match reply.word() {
            "prepared" => self.restore(records, shard, epoch, grace).await?,
            "done" => {
                self.set_epoch(shard, Epoch::new(reply.next()?)?);
                return Ok(());
            }
            _ => return Err(reply.unexpected().into()),
        }
        match epoch::mark(&self.hot, &marker, epoch).await? {
            Mark::Marked | Mark::Already => self.set_epoch(shard, epoch),
            Mark::Stale { found } => self.set_epoch(shard, found),
        }
        tracing::info!(shard = shard.number(), %epoch, "rebuilt a part of the hot state");
        Ok(())
    }

    async fn restore(&self, records: &Records, shard: Shard, epoch: Epoch, grace: Duration) -> Result<()> {
        let monitors = monitor::all(records).await?;
        let down = incident::open(records).await?;
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
                let standing = open.map_or(Standing::NEW, standing_of);
                let (lease_ms, next_ms) =
                    (millis(monitor.timeout() + grace), monitor.next_ms(&standing, now_ms));
                let text = format!("{} {lease_ms} 0 {next_ms} {standing}", monitor.generation);
                let failures = open.map(|open| open.failures.max(1).to_string()).unwrap_or_default();
                call = call.arg(monitor.id.as_str()).arg(text).arg(next_ms).arg(failures);
                call = call.arg(standing.first_failure_ms / 1000).arg(standing.last_failure_ms / 1000);
                call = call.arg(u8::from(open.is_some_and(|open| open.told_at.is_some())));
            }
            let reply: Reply = self.hot.run(call).await?;
            if reply.word() == "over" {
                break;
            }
        }
        Ok(())
    }
}

/// A monitor that the records say is down.
fn standing_of(open: &Incident) -> Standing {
    let ms = |time: hob_records::UnixMs| u64::try_from(time.0).unwrap_or(0);
    Standing {
        state: State::Down,
        failures: open.failures.max(1),
        successes: 0,
        first_failure_ms: ms(open.opened_at),
        last_failure_ms: ms(open.confirmed_at),
        last_ms: ms(open.confirmed_at),
    }
}
