//! Rebuilds a quota from the call log after the store has lost its data.

use hob_database::{Isolation, UnixMs};
use hob_store::epoch::Epoch;
use hob_store::{CLOCK, Reply, Script, cmd};

use super::{HOUR_MS, MAX_RECOVERIES, QuotaDefinition, Quotas, millis};
use crate::database::{calls, quotas};
use crate::error::{Error, Result};

static RESTORE: Script = Script::with(&[CLOCK], include_str!("restore.lua"));

/// Rows per script call.
const CHUNK: u32 = 500;

enum RestoreOutcome {
    Complete,
    /// The store lost its data again.
    Lost,
}

impl Quotas {
    /// Rebuilds a lost quota in a new epoch. The epoch is raised first: a reservation of the old epoch is in the log by
    /// then, or the log refuses it.
    pub(super) async fn rebuild(&self, lost: &QuotaDefinition, found: Option<Epoch>) -> Result<()> {
        let _rebuilding = self.inner.rebuilding.lock().await;
        let current = self.load_definition(&lost.name).await?;
        if current.epoch > lost.epoch && self.has_marker(&current).await? {
            return Ok(());
        }
        for _ in 0..MAX_RECOVERIES {
            // Another node may have raised the epoch and not finished.
            let newest = found.into_iter().chain([lost.epoch]).max().unwrap_or(lost.epoch);
            self.raise_epoch(lost, newest).await?;
            let definition = self.load_definition(&lost.name).await?;
            match self.restore(&definition).await? {
                RestoreOutcome::Complete => {
                    if lost.epoch.get() == 0 {
                        tracing::info!(quota = %lost.name, "quota initialized");
                    } else {
                        tracing::warn!(quota = %lost.name, epoch = %definition.epoch, "quota rebuilt from the call log");
                    }
                    crate::metrics::rebuilt();
                    return Ok(());
                }
                RestoreOutcome::Lost => {}
            }
        }
        Err(Error::StoreUnstable)
    }

    async fn has_marker(&self, definition: &QuotaDefinition) -> Result<bool> {
        let marker = self.inner.keys.quota_marker(definition.name.id());
        let epoch: Option<u32> =
            self.inner.store.run(cmd("HGET").arg(marker.as_ref() as &[u8]).arg("epoch")).await?;
        Ok(epoch == Some(definition.epoch.get()))
    }

    /// Raises the epoch to the one after `lost`, unless another node has done so.
    async fn raise_epoch(&self, definition: &QuotaDefinition, lost: Epoch) -> Result<()> {
        let name = &definition.name;
        self.inner
            .database
            .write_with(Isolation::ReadCommitted, |tx| async move {
                quotas::raise_epoch(&tx, name, lost.get()).await
            })
            .await?;
        Ok(())
    }

    /// Restores the calls that any window may still count.
    async fn restore(&self, definition: &QuotaDefinition) -> Result<RestoreOutcome> {
        let (database, name) = (&self.inner.database, &definition.name);
        let newest = calls::newest(database, name).await?;
        // The clock may be ahead of the newest call, so this restores too many calls rather than too few.
        let since = newest.minus(definition.limits.longest_window());
        let hour = newest.0 / HOUR_MS;
        let count = |hour: i64| {
            calls::reserved_between(database, name, UnixMs(hour * HOUR_MS), UnixMs((hour + 1) * HOUR_MS))
        };
        let (this_hour, hour_before) = (count(hour).await?, count(hour - 1).await?);
        let keys = &self.inner.keys;
        let keys = [keys.quota_marker(name.id()), keys.quota_calls(name.id()), keys.quota_state(name.id())];
        let token = format!("{:016x}", rand::random::<u64>());
        let mut after = (UnixMs(0), String::new());
        let mut part = "first";
        loop {
            let calls = calls::ended_after(database, name, since, &after, CHUNK).await?;
            let last = calls.last().filter(|_| calls.len() == CHUNK as usize);
            let mut call = RESTORE
                .on(&keys)
                .arg(self.inner.store.clock().us())
                .arg(millis(definition.limits.longest_window()));
            call =
                call.arg(newest.0).arg(definition.blocked_until.0).arg(hour).arg(this_hour).arg(hour_before);
            call = call.arg(&token).arg(part);
            call = if last.is_some() { call.arg("") } else { call.arg(definition.epoch.get()) };
            for row in &calls {
                call = call.arg(&row.id).arg(row.calls).arg(row.until.0);
            }
            let reply: Reply = self.inner.store.run(call).await?;
            match (reply.word(), last) {
                ("again", _) => return Ok(RestoreOutcome::Lost),
                (_, None) => return Ok(RestoreOutcome::Complete),
                (_, Some(last)) => after = (last.until, last.id.clone()),
            }
            part = "more";
        }
    }
}
