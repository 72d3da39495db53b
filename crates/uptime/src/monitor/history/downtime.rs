//! Downtime of monitors, from their incidents: exact to the failed check, whatever the interval.

use std::collections::HashMap;

use hob_database::{Read, UnixMs};

use super::Period;
use crate::database::incidents;
use crate::error::Result;
use crate::incident::Incident;
use crate::keys::MonitorId;
use crate::monitor::Monitor;

/// Monitors that one query reads the incidents of.
const BATCH: usize = 500;

/// The incidents of some monitors within the longest [`Period`].
#[derive(Clone, Debug, Default)]
pub struct Downtime {
    by_monitor: HashMap<MonitorId, Vec<Incident>>,
    now_ms: i64,
}

/// Reads the incidents of these monitors within the longest period.
pub async fn availability(on: &impl Read, monitors: &[MonitorId], now: UnixMs) -> Result<Downtime> {
    let from = UnixMs(now.0 - Period::Quarter.length_ms());
    let mut by_monitor: HashMap<MonitorId, Vec<Incident>> = HashMap::new();
    for batch in monitors.chunks(BATCH) {
        for incident in incidents::since(on, batch, from).await? {
            by_monitor.entry(incident.monitor_id.clone()).or_default().push(incident);
        }
    }
    Ok(Downtime { by_monitor, now_ms: now.0 })
}

impl Downtime {
    /// Percentage of a period, or of the monitor's lifetime if that is shorter, in which it was not down.
    #[must_use]
    pub fn uptime(&self, monitor: &Monitor, period: Period) -> f64 {
        let from = (self.now_ms - period.length_ms()).max(monitor.created_at.0);
        let length = (self.now_ms - from).max(1);
        100.0 * (1.0 - self.down_ms(&monitor.id, from, self.now_ms) as f64 / length as f64).max(0.0)
    }

    /// How long a monitor was down in `from..to`, without maintenance.
    #[must_use]
    pub fn down_ms(&self, monitor: &MonitorId, from: i64, to: i64) -> i64 {
        let counts = |incident: &&Incident| !incident.maintenance;
        let within = |incident: &Incident| {
            let end = incident.resolved_at.map_or(self.now_ms, |at| at.0);
            (end.min(to) - incident.opened_at.0.max(from)).max(0)
        };
        self.incidents(monitor).iter().filter(counts).map(within).sum()
    }

    /// The incidents of a monitor, the newest first.
    #[must_use]
    pub fn incidents(&self, monitor: &MonitorId) -> &[Incident] {
        self.by_monitor.get(monitor).map_or(&[], Vec::as_slice)
    }
}
