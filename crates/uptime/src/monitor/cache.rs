//! Monitors and maintenance windows in memory, read from the database again when they are outdated. A worker compares the
//! generation of its claim, so an outdated copy decides nothing.

use std::collections::HashMap;
use std::sync::Arc;

use hob_database::{Database, UnixMs};
use parking_lot::RwLock;

use crate::database::{maintenance, monitors};
use crate::error::Result;
use crate::incident::Alerting;
use crate::keys::MonitorId;
use crate::monitor::Monitor;
use crate::monitor::maintenance::Maintenance;

#[derive(Debug)]
pub(crate) struct MonitorCache {
    database: Database,
    monitors: RwLock<HashMap<MonitorId, Arc<Monitor>>>,
    /// All monitors in display order; `None` after a change.
    sorted: RwLock<Option<Arc<[Arc<Monitor>]>>>,
    windows: RwLock<Arc<[Maintenance]>>,
}

impl MonitorCache {
    pub(crate) async fn open(database: &Database) -> Result<Self> {
        let cache = Self {
            database: database.clone(),
            monitors: RwLock::default(),
            sorted: RwLock::default(),
            windows: RwLock::default(),
        };
        cache.refresh().await?;
        Ok(cache)
    }

    /// Reads everything from the database.
    pub(crate) async fn refresh(&self) -> Result<()> {
        let monitors = monitors::all(&self.database).await?;
        let monitors = monitors.into_iter().map(|monitor| (monitor.id.clone(), Arc::new(monitor))).collect();
        *self.monitors.write() = monitors;
        *self.sorted.write() = None;
        self.refresh_windows().await
    }

    pub(crate) async fn refresh_windows(&self) -> Result<()> {
        *self.windows.write() = maintenance::all(&self.database).await?.into();
        Ok(())
    }

    /// Reads one monitor from the database.
    pub(crate) async fn refresh_one(&self, id: &MonitorId) -> Result<Option<Arc<Monitor>>> {
        match monitors::by_id(&self.database, id).await? {
            Some(monitor) => Ok(Some(self.insert(monitor))),
            None => {
                self.monitors.write().remove(id);
                *self.sorted.write() = None;
                Ok(None)
            }
        }
    }

    /// Inserts a monitor, unless the cache has this generation or a later one; returns the one in the cache.
    pub(crate) fn insert(&self, monitor: Monitor) -> Arc<Monitor> {
        let mut monitors = self.monitors.write();
        match monitors.get(&monitor.id) {
            Some(known) if known.generation >= monitor.generation => Arc::clone(known),
            _ => {
                let monitor = Arc::new(monitor);
                monitors.insert(monitor.id.clone(), Arc::clone(&monitor));
                *self.sorted.write() = None;
                monitor
            }
        }
    }

    pub(crate) fn get(&self, id: &MonitorId) -> Option<Arc<Monitor>> {
        self.monitors.read().get(id).map(Arc::clone)
    }

    /// The monitor in this generation or a later one, from the database if the cache does not have it.
    pub(crate) async fn at_least(&self, id: &MonitorId, generation: u64) -> Result<Option<Arc<Monitor>>> {
        match self.get(id) {
            Some(monitor) if monitor.generation >= generation => Ok(Some(monitor)),
            _ => self.refresh_one(id).await,
        }
    }

    /// All monitors, by group and name.
    pub(crate) fn all(&self) -> Arc<[Arc<Monitor>]> {
        if let Some(sorted) = &*self.sorted.read() {
            return Arc::clone(sorted);
        }
        // Held while sorting, so that no monitor changes before the list is stored.
        let monitors = self.monitors.read();
        let mut all: Vec<Arc<Monitor>> = monitors.values().map(Arc::clone).collect();
        all.sort_by_cached_key(|monitor| {
            (monitor.spec.group.clone(), monitor.spec.name.to_lowercase(), monitor.id.clone())
        });
        let all: Arc<[Arc<Monitor>]> = all.into();
        *self.sorted.write() = Some(Arc::clone(&all));
        all
    }

    pub(crate) fn len(&self) -> usize {
        self.monitors.read().len()
    }

    pub(crate) fn windows(&self) -> Arc<[Maintenance]> {
        Arc::clone(&self.windows.read())
    }

    /// Whether a failure of the monitor at this time sends alerts.
    pub(crate) fn alerting(&self, monitor: &Monitor, at: UnixMs) -> Alerting {
        match self.covered_until(monitor, at) {
            Some(_) => Alerting::Suppressed,
            None => Alerting::Enabled,
        }
    }

    /// When the maintenance windows end that cover the monitor at this time; `None` if none does.
    pub(crate) fn covered_until(&self, monitor: &Monitor, at: UnixMs) -> Option<UnixMs> {
        let windows = self.windows.read();
        let covering = windows.iter().filter(|window| window.covers(monitor, at));
        covering.map(|window| UnixMs(window.spec.ends_at_ms)).max()
    }
}
