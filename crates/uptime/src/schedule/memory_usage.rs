//! Memory of monitors in the store (U9).

use hob_store::{Call, cmd};
use hob_web::MemoryUsage;

use crate::error::Result;
use crate::uptime::Uptime;

/// Monitors that are measured; the rest is estimated from them.
const MEASURED: usize = 200;

impl Uptime {
    /// Measures the memory for the pages and the metrics.
    pub(crate) async fn measure(&self) -> Result<()> {
        let memory_usage = self.measure_memory().await?;
        crate::metrics::measured(&memory_usage);
        *self.inner.memory_usage.lock() = Some(memory_usage);
        Ok(())
    }

    /// Reads the size of the shared keys, and of the keys of an even sample of the monitors.
    pub async fn measure_memory(&self) -> Result<MemoryUsage> {
        let monitors = self.monitors();
        let keys = self.schedule().keys();
        let usage = |key: hob_store::Key| -> Call {
            cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(100).clone().into()
        };
        let shared: Vec<Call> =
            self.schedule().shards().flat_map(|shard| self.schedule().shard_keys(shard)).map(usage).collect();
        let step = monitors.len().div_ceil(MEASURED).max(1);
        let measured: Vec<_> = monitors.iter().step_by(step).collect();
        let own = measured.iter().flat_map(|monitor| {
            [keys.status(&monitor.id), keys.incident(&monitor.id), keys.retry(&monitor.id)]
        });
        let own: Vec<Call> = own.map(usage).collect();
        let (shared, own) = (self.sum(&shared).await?, self.sum(&own).await?);
        let own = own * monitors.len() as u64 / (measured.len() as u64).max(1);
        Ok(MemoryUsage { service: "Uptime", objects: "monitors", count: monitors.len(), bytes: shared + own })
    }

    async fn sum(&self, calls: &[Call]) -> Result<u64> {
        let mut sum = 0;
        for answer in self.inner.context.store.batch(calls).await {
            if let hob_store::Value::Int(bytes) = answer? {
                sum += u64::try_from(bytes).unwrap_or(0);
            }
        }
        Ok(sum)
    }
}
