//! What the dashboard and the API show of monitors (U7), read from the store alone: one round trip for all states and one
//! for the rows of the page.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_schema::Shard;
use hob_store::repair::{self, KeyType};
use hob_store::{Text, cmd};
use parking_lot::Mutex;

use crate::error::Result;
use crate::keys::MonitorId;
use crate::monitor::Monitor;
use crate::schedule::Schedule;
use crate::schedule::state::{MonitorHealth, MonitorState};
use crate::uptime::Uptime;

/// How long a snapshot is reused, so that many viewers cost as much as one.
const MAX_AGE: Duration = Duration::from_millis(100);

/// The states of all monitors at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    health: HashMap<MonitorId, MonitorHealth>,
    /// The store's time.
    pub now_ms: u64,
}

/// The last snapshot.
#[derive(Debug, Default)]
pub(crate) struct SnapshotCache(Mutex<CachedSnapshot>);

#[derive(Debug, Default)]
struct CachedSnapshot {
    last: Option<(Instant, Arc<Snapshot>)>,
    /// How often it was invalidated. A snapshot whose read began before an invalidation is not kept.
    invalidations: u64,
}

/// A monitor with its state, as lists show it.
#[derive(Clone, Debug)]
pub struct MonitorRow {
    pub monitor: Arc<Monitor>,
    pub state: MonitorState,
    /// Failed checks in a row.
    pub failures: u32,
    /// The first of those failures.
    pub failing_since_ms: Option<u64>,
    pub status: MonitorStatus,
}

/// The last results of a monitor (U2). Empty before the first, and when they are too old.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonitorStatus {
    pub status_code: Option<u16>,
    /// Of the last successful check.
    pub latency_ms: Option<u64>,
    pub checked_at_s: Option<u64>,
    /// Of the last check.
    pub last_at_ms: Option<u64>,
    pub last_us: Option<u64>,
    /// Name lookup, connect, TLS, first byte.
    pub phases_us: [Option<u64>; 4],
    /// Of the last check, in the order of the monitor's assertions.
    pub assertions: Vec<AssertionFinding>,
    pub error: Option<String>,
    /// Of the last successful check.
    pub certificate_expires_s: Option<u64>,
    pub recent: Vec<RecentResult>,
}

/// The result of one assertion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssertionFinding {
    pub holds: bool,
    pub found: String,
}

/// One of the newest results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecentResult {
    pub state: MonitorState,
    pub ms: u64,
    pub at_s: u64,
}

/// How many monitors are in each state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateCounts(HashMap<MonitorState, usize>);

impl Uptime {
    /// The states of all monitors.
    pub async fn snapshot(&self) -> Result<Arc<Snapshot>> {
        let cache = &self.inner.snapshot;
        let invalidations = match &*cache.0.lock() {
            CachedSnapshot { last: Some((at, snapshot)), .. } if at.elapsed() < MAX_AGE => {
                return Ok(Arc::clone(snapshot));
            }
            cached => cached.invalidations,
        };
        let snapshot = Arc::new(self.schedule().snapshot().await?);
        let mut cached = cache.0.lock();
        if cached.invalidations == invalidations {
            cached.last = Some((Instant::now(), Arc::clone(&snapshot)));
        }
        Ok(snapshot)
    }

    /// The rows of some monitors.
    pub async fn rows(&self, snapshot: &Snapshot, monitors: &[Arc<Monitor>]) -> Result<Vec<MonitorRow>> {
        let keys = self.schedule().keys();
        let call = |monitor: &Arc<Monitor>| cmd("HGETALL").arg(keys.status(&monitor.id)).clone().into();
        let calls: Vec<_> = monitors.iter().map(call).collect();
        let store = &self.inner.context.store;
        let mut rows = Vec::with_capacity(monitors.len());
        for (monitor, answer) in monitors.iter().zip(store.batch(&calls).await) {
            let status = repair::or_none(store, answer, (keys.status(&monitor.id), KeyType::Hash)).await?;
            let fields: Vec<(Text, Text)> = status.map(read).transpose()?.unwrap_or_default();
            let fields = fields.into_iter().map(|(Text(field), Text(value))| (field, value)).collect();
            let health = snapshot.health(&monitor.id);
            let failing_since_ms = (health.failures > 0).then_some(health.first_failure_ms);
            rows.push(MonitorRow {
                monitor: Arc::clone(monitor),
                state: snapshot.state(monitor),
                failures: health.failures,
                failing_since_ms,
                status: MonitorStatus::read(&fields),
            });
        }
        Ok(rows)
    }

    /// The row of one monitor.
    pub async fn row(&self, monitor: &Arc<Monitor>) -> Result<MonitorRow> {
        let snapshot = self.snapshot().await?;
        let mut rows = self.rows(&snapshot, std::slice::from_ref(monitor)).await?;
        Ok(rows.remove(0))
    }
}

impl SnapshotCache {
    /// The next snapshot is read from the store. For changes whose caller expects to see them at once; results of scheduled
    /// checks are so many that the cache would never be used.
    pub(crate) fn invalidate(&self) {
        let mut cached = self.0.lock();
        cached.last = None;
        cached.invalidations += 1;
    }
}

impl Schedule {
    /// The states of all monitors, as the store has them.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        let shards: Vec<_> = self.shards().collect();
        let call = |shard: &Shard| cmd("HGETALL").arg(self.keys.standing(*shard)).clone().into();
        let calls: Vec<_> = shards.iter().map(call).collect();
        let mut snapshot = Snapshot::default();
        for (shard, answer) in shards.iter().zip(self.store.batch(&calls).await) {
            let fields: Vec<(Text, Text)> = match answer {
                Err(error) if error.is_foreign_value() => {
                    self.repair(*shard, &error).await?;
                    continue;
                }
                answer => read(answer?)?,
            };
            for (Text(id), Text(text)) in fields {
                let health = text.splitn(5, ' ').nth(4).and_then(|rest| rest.parse().ok());
                if let (Ok(id), Some(health)) = (MonitorId::new(id), health) {
                    snapshot.health.insert(id, health);
                }
            }
        }
        snapshot.now_ms = match shards.first() {
            Some(shard) => self.now_ms(*shard).await?,
            None => 0,
        };
        Ok(snapshot)
    }
}

fn read<T: hob_store::FromRedisValue>(value: hob_store::Value) -> Result<T> {
    Ok(T::from_redis_value(value).map_err(|error| hob_store::Error::Reply(error.to_string()))?)
}

impl Snapshot {
    #[must_use]
    pub fn health(&self, id: &MonitorId) -> MonitorHealth {
        self.health.get(id).copied().unwrap_or(MonitorHealth::NEW)
    }

    /// The state that is shown: stale if the last result is too old, pending if the store does not know the monitor.
    #[must_use]
    pub fn state(&self, monitor: &Monitor) -> MonitorState {
        if monitor.spec.paused {
            return MonitorState::Paused;
        }
        let health = self.health(&monitor.id);
        let age_ms = self.now_ms.saturating_sub(health.last_ms);
        let too_old = u128::from(age_ms) > monitor.stale_after().as_millis();
        match health.state {
            MonitorState::Pending => MonitorState::Pending,
            _ if too_old => MonitorState::Stale,
            state => state,
        }
    }

    #[must_use]
    pub fn state_counts(&self, monitors: &[Arc<Monitor>]) -> StateCounts {
        let mut state_counts = StateCounts::default();
        for monitor in monitors {
            *state_counts.0.entry(self.state(monitor)).or_default() += 1;
        }
        state_counts
    }
}

impl StateCounts {
    #[must_use]
    pub fn of(&self, state: MonitorState) -> usize {
        self.0.get(&state).copied().unwrap_or(0)
    }

    #[must_use]
    pub fn total(&self) -> usize {
        self.0.values().sum()
    }

    #[must_use]
    pub fn failing(&self) -> usize {
        MonitorState::ALL.into_iter().filter(|state| state.is_failing()).map(|state| self.of(state)).sum()
    }
}

impl MonitorStatus {
    fn read(fields: &HashMap<String, String>) -> Self {
        let text = |name: &str| fields.get(name).map(String::as_str).filter(|text| !text.is_empty());
        let number = |name: &str| text(name)?.parse().ok();
        let mut phases = text("phases").unwrap_or_default().split(' ').map(|us| us.parse().ok());
        Self {
            status_code: text("status_code").and_then(|code| code.parse().ok()),
            latency_ms: number("latency_ms"),
            checked_at_s: number("checked_at"),
            last_at_ms: number("last_at"),
            last_us: number("last_us"),
            phases_us: std::array::from_fn(|_| phases.next().flatten()),
            assertions: text("assertions")
                .unwrap_or_default()
                .lines()
                .filter_map(AssertionFinding::read)
                .collect(),
            error: text("error").map(str::to_owned),
            certificate_expires_s: number("certificate_expires_at").filter(|at| *at > 0),
            recent: text("recent").unwrap_or_default().split(' ').filter_map(RecentResult::read).collect(),
        }
    }
}

impl AssertionFinding {
    fn read(line: &str) -> Option<Self> {
        let holds = line.starts_with('1');
        Some(Self { holds, found: line.get(1..)?.to_owned() })
    }
}

impl RecentResult {
    fn read(text: &str) -> Option<Self> {
        let state = MonitorState::ALL.into_iter().find(|state| text.starts_with(&state.as_str()[..1]))?;
        let (ms, at) = text.get(1..)?.split_once(':')?;
        Some(Self { state, ms: ms.parse().ok()?, at_s: u64::from_str_radix(at, 36).ok()? })
    }
}
