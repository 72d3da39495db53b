//! Rebuilds a quota from the call log after the store has lost its data.

use std::ops::RangeInclusive;

use hob_database::{Isolation, UnixMs};
use hob_store::epoch::{self, Epoch, MARKER, Progress, Rebuild, Recovery};
use hob_store::repair::STORED;
use hob_store::{CLOCK, Reply, Script};

use super::{HOUR_MS, QuotaDefinition, QuotaName, Quotas};
use crate::database::{calls, quotas};
use crate::error::{Error, Result};

static RESTORE: Script = Script::with(&[CLOCK, MARKER, STORED], include_str!("restore.lua"));

/// Rows per script call.
const CHUNK: u32 = 500;

impl Quotas {
    /// Rebuilds a lost quota in a new epoch, unless another task or node has done so.
    pub(super) async fn rebuild(&self, lost: &QuotaDefinition) -> Result<()> {
        let _rebuilding = self.inner.rebuilding.lock().await;
        let source = QuotaSource { quotas: self, name: &lost.name };
        let marker = self.inner.keys.quota_marker(lost.name.id());
        match epoch::rebuild(&self.inner.store, marker, &[], &source).await? {
            Recovery::Rebuilt(epoch) => {
                if lost.epoch.get() == 0 {
                    tracing::info!(quota = %lost.name, "quota initialized in the store");
                } else {
                    tracing::warn!(quota = %lost.name, %epoch, "quota rebuilt from the call log");
                }
                crate::metrics::rebuilt();
                Ok(())
            }
            Recovery::Adopted(_) => Ok(()),
            Recovery::Interrupted => Err(Error::StoreUnstable),
        }
    }
}

/// A quota in the database.
pub(super) struct QuotaSource<'a> {
    pub(super) quotas: &'a Quotas,
    pub(super) name: &'a QuotaName,
}

impl Rebuild for QuotaSource<'_> {
    type Error = Error;

    async fn valid_epochs(&self) -> Result<RangeInclusive<Epoch>> {
        let epoch = self.quotas.load_definition(self.name).await?.epoch;
        Ok(epoch..=epoch)
    }

    /// Waits for reservations of the old epoch that are being logged; the log refuses later ones.
    async fn raise_epoch(&self, lost: Epoch) -> Result<Option<Epoch>> {
        let (name, lost) = (self.name, lost.get());
        let raise = |tx: hob_database::Transaction| async move { quotas::raise_epoch(&tx, name, lost).await };
        let raised = self.quotas.inner.database.write_with(Isolation::ReadCommitted, raise).await?;
        Ok(if raised { Some(Epoch::new(lost + 1)?) } else { None })
    }

    /// Restores the calls that any window may still count.
    async fn restore(&self, epoch: Epoch) -> Result<Progress> {
        let definition = self.quotas.load_definition(self.name).await?;
        if definition.epoch != epoch {
            return Ok(Progress::Superseded);
        }
        let (inner, name) = (&self.quotas.inner, self.name);
        let database = &inner.database;
        let newest = calls::newest(database, name).await?;
        // The clock may be ahead of the newest call, so this restores too many calls rather than too few.
        let since = newest.minus(definition.limits.longest_window());
        let hour = newest.0 / HOUR_MS;
        let count = |hour: i64| {
            calls::reserved_between(database, name, UnixMs(hour * HOUR_MS), UnixMs((hour + 1) * HOUR_MS))
        };
        let (this_hour, hour_before) = (count(hour).await?, count(hour - 1).await?);
        let keys = &inner.keys;
        let keys = [keys.quota_marker(name.id()), keys.quota_calls(name.id()), keys.quota_state(name.id())];
        let mut after = (UnixMs(0), String::new());
        loop {
            let calls = calls::ended_after(database, name, since, &after, CHUNK).await?;
            let mut call = RESTORE.on(&keys).arg(epoch.get()).arg(inner.store.clock().us());
            call = call.arg(newest.0).arg(definition.blocked_until.0);
            call = call.arg(hour).arg(this_hour).arg(hour_before);
            for row in &calls {
                call = call.arg(&row.id).arg(row.calls).arg(row.until.0);
            }
            let reply: Reply = inner.store.run(call).await?;
            if Progress::read(&reply, "restored")? == Progress::Superseded {
                return Ok(Progress::Superseded);
            }
            match calls.last().filter(|_| calls.len() == CHUNK as usize) {
                Some(last) => after = (last.until, last.id.clone()),
                None => return Ok(Progress::Complete),
            }
        }
    }
}
