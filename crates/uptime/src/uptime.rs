//! The handle of the service: everything that can be done with monitors, on any node.

use std::sync::{Arc, OnceLock};

use hob_database::{Database, Migrations};
use hob_schema::Shard;
use hob_service::{Live, Metric, Samples, ServiceContext};
use hob_units::Secret;
use hob_web::{Card, Changes, MAX_SEARCH_HITS, MemoryUsage, Routes, SearchHit, Service};
use tokio::sync::{Mutex, Notify};

use crate::Config;
use crate::database::channels;
use crate::database::incidents;
use crate::database::maintenance;
use crate::database::monitors::{self, MonitorEdit};
use crate::error::{Error, Result};
use crate::incident::alert::Alerts;
use crate::incident::unix_ms;
use crate::keys::MonitorId;
use crate::monitor::apply::edit_monitor;
use crate::monitor::cache::MonitorCache;
use crate::monitor::check::{Check, FailureClass, FieldError, Observation};
use crate::monitor::heartbeat::HeartbeatSignal;
use crate::monitor::history::{self, ResultQueue, ResultReceiver};
use crate::monitor::maintenance::{Maintenance, MaintenanceSpec};
use crate::monitor::secrets;
use crate::monitor::{Monitor, MonitorSpec};
use crate::pages::StatusCache;
use crate::probe::Probe;
use crate::probe::network::LocalNetwork;
use crate::schedule::rebuild::health_of;
use crate::schedule::snapshot::SnapshotCache;
use crate::schedule::state::{MonitorHealth, MonitorState};
use crate::schedule::{RemovalReason, Schedule, ScheduleEntry};
use crate::{card, demo, metrics, pages, routes};
use hob_store::Text;
use hob_store::epoch::Outcome;
use hob_store::repair::{self, KeyType};

/// The most monitors of a deployment. Each takes memory in the store and on every node.
pub const MAX_MONITORS: usize = 100_000;

/// The uptime service on one node. Clones share one state.
#[derive(Clone, Debug)]
pub struct Uptime {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) context: ServiceContext,
    pub(crate) config: Live<Config>,
    pub(crate) schedule: Schedule,
    pub(crate) cache: MonitorCache,
    pub(crate) probe: Probe,
    pub(crate) alerts: Alerts,
    pub(crate) network: LocalNetwork,
    pub(crate) results: ResultQueue,
    pub(crate) queued_results: Mutex<ResultReceiver>,
    /// Wakes the worker when there may be something to claim.
    pub(crate) wake: Notify,
    /// Wakes the task that sends reminders, for an incident with frequent ones.
    pub(crate) new_incident: Notify,
    pub(crate) snapshot: SnapshotCache,
    pub(crate) status: StatusCache,
    /// The last measurement.
    pub(crate) memory_usage: parking_lot::Mutex<Option<MemoryUsage>>,
    /// Held during a rebuild.
    rebuilding: Mutex<()>,
    changes: OnceLock<Changes>,
}

/// The outcome of a request to add a monitor.
#[derive(Debug)]
pub enum AddOutcome {
    Added(Arc<Monitor>),
    /// Another monitor has this id.
    IdTaken,
    /// There are [`MAX_MONITORS`].
    LimitReached,
    Invalid(Vec<FieldError>),
}

/// The outcome of a request to edit a monitor.
#[derive(Debug)]
pub enum EditOutcome {
    Edited(Arc<Monitor>),
    /// The new values are the old ones.
    Unchanged(Arc<Monitor>),
    NotFound,
    Invalid(Vec<FieldError>),
}

/// The outcome of a request to check a monitor now.
#[derive(Debug)]
pub enum CheckNowOutcome {
    Checked {
        observation: Box<Observation>,
        state: MonitorState,
    },
    /// The monitor is deleted or paused, or was edited during the check.
    Skipped,
    /// A heartbeat monitor cannot be checked on demand: it waits for reports from the monitored job.
    Heartbeat,
}

impl Service for Uptime {
    type Config = Config;
    type Error = Error;

    const TITLE: &'static str = "Uptime";
    const HREF: &'static str = "/uptime";
    const ICON: &'static str = "M2.5 11h3.5l2-6 3.5 10 2.2-4h3.8";
    const SCHEMA: (&'static str, &'static str) =
        ("schemas/uptime.toml", include_str!("../../../schemas/uptime.toml"));
    const MIGRATIONS: Migrations = crate::MIGRATIONS;
    const METRICS: &'static [Metric] = metrics::METRICS;
    const USES_SECRETS: bool = true;

    /// Prepares the service and rebuilds the parts of the store that are missing.
    async fn open(context: &ServiceContext, config: Live<Config>) -> Result<Self> {
        let schedule = Schedule::new(&context.store, context.layout)?;
        schedule.open(&context.database, config.current().grace.get()).await?;
        let (results, queued_results) = history::result_queue();
        let probe = Probe::new(config.current().limits(&context.outbound)?, context.secrets.clone());
        let inner = Inner {
            schedule,
            cache: MonitorCache::open(&context.database).await?,
            alerts: Alerts::new(context, &probe, config.clone()),
            probe,
            network: LocalNetwork::default(),
            results,
            queued_results: Mutex::new(queued_results),
            wake: Notify::new(),
            new_incident: Notify::new(),
            snapshot: SnapshotCache::default(),
            status: StatusCache::default(),
            memory_usage: parking_lot::Mutex::default(),
            rebuilding: Mutex::new(()),
            changes: OnceLock::new(),
            context: context.clone(),
            config,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    fn start(&self, changes: &Changes) {
        let _ = self.inner.changes.set(changes.clone());
        crate::schedule::background::start(self);
        crate::status::start(self, changes);
        pages::start_status_pages(self);
        self.inner.alerts.start(changes);
    }

    fn routes(&self) -> Routes {
        let own = routes::routes().merge(pages::routes()).with_state(self.clone());
        own.merge(self.inner.alerts.routes())
    }

    async fn card(&self) -> Card {
        card::card(self).await
    }

    async fn demo(&self) -> Result<()> {
        demo::start(self).await
    }

    async fn search(&self, query: &str) -> Result<Vec<SearchHit>> {
        let found = |monitor: &&Arc<Monitor>| {
            let (id, spec) = (monitor.id.as_str(), &monitor.spec);
            SearchHit::matches(query, &[id, &spec.name, &spec.target, &spec.group, &spec.tags.join(" ")])
        };
        let hit = |monitor: &Arc<Monitor>| SearchHit {
            kind: "monitor",
            title: monitor.spec.name.clone(),
            detail: monitor.spec.target.clone(),
            href: pages::path(&monitor.id),
        };
        Ok(self.monitors().iter().filter(found).take(MAX_SEARCH_HITS).map(hit).collect())
    }

    fn memory_usage(&self) -> Option<MemoryUsage> {
        *self.inner.memory_usage.lock()
    }

    async fn samples(&self, samples: &mut Samples) -> Result<()> {
        metrics::monitors(self, samples).await
    }
}

impl Uptime {
    #[must_use]
    pub fn schedule(&self) -> &Schedule {
        &self.inner.schedule
    }

    #[must_use]
    pub fn database(&self) -> &Database {
        &self.inner.context.database
    }

    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        self.inner.config.current()
    }

    /// All monitors, by group and name.
    #[must_use]
    pub fn monitors(&self) -> Arc<[Arc<Monitor>]> {
        self.inner.cache.all()
    }

    /// Reads a monitor from the database.
    pub async fn monitor(&self, id: &MonitorId) -> Result<Option<Arc<Monitor>>> {
        self.inner.cache.refresh_one(id).await
    }

    pub async fn add(&self, id: Option<MonitorId>, spec: &MonitorSpec) -> Result<AddOutcome> {
        let secrets = &self.inner.context.secrets;
        let checked = spec.validate().and_then(|(check, _)| secrets::check_monitor(secrets, &check));
        let mut errors = checked.err().unwrap_or_default();
        errors.extend(self.missing_channels(spec, &[]).await?);
        if !errors.is_empty() {
            return Ok(AddOutcome::Invalid(errors));
        }
        if self.inner.cache.len() >= MAX_MONITORS {
            return Ok(AddOutcome::LimitReached);
        }
        let id = id.unwrap_or_else(MonitorId::random);
        let Some(monitor) = monitors::add(self.database(), &id, spec).await? else {
            return Ok(AddOutcome::IdTaken);
        };
        let monitor = self.inner.cache.insert(monitor);
        self.sync_schedule(&monitor).await;
        Ok(AddOutcome::Added(monitor))
    }

    pub async fn edit(&self, id: &MonitorId, spec: &MonitorSpec) -> Result<EditOutcome> {
        let (check, assertions) = match spec.parse() {
            Ok(parsed) => parsed,
            Err(errors) => return Ok(EditOutcome::Invalid(errors)),
        };
        let before = self.monitor(id).await?;
        // What has not changed may be saved again, or be paused, even if it would be refused today: a secret may have been
        // withdrawn, a channel removed. A secret is refused again when it is used.
        let is_same = |old: &Arc<Monitor>| old.check == check && old.assertions == assertions;
        let mut errors = Vec::new();
        if !before.as_ref().is_some_and(is_same) {
            errors = check.impossible(&assertions);
            errors.extend(
                secrets::check_monitor(&self.inner.context.secrets, &check).err().unwrap_or_default(),
            );
        }
        let kept: &[String] = before.as_ref().map_or(&[], |old| &old.spec.channels);
        errors.extend(self.missing_channels(spec, kept).await?);
        if !errors.is_empty() {
            return Ok(EditOutcome::Invalid(errors));
        }
        match edit_monitor(self.database(), id, spec).await? {
            MonitorEdit::NotFound => Ok(EditOutcome::NotFound),
            MonitorEdit::Unchanged(monitor) => Ok(EditOutcome::Unchanged(self.inner.cache.insert(*monitor))),
            MonitorEdit::Edited(monitor) => {
                let monitor = self.inner.cache.insert(*monitor);
                self.sync_schedule(&monitor).await;
                Ok(EditOutcome::Edited(monitor))
            }
        }
    }

    /// Errors of channels that do not exist, except those that the monitor had before.
    async fn missing_channels(&self, spec: &MonitorSpec, kept: &[String]) -> Result<Vec<FieldError>> {
        let mut missing = channels::resolve(self.database(), &spec.channels).await?.missing;
        missing.retain(|channel| !kept.contains(channel));
        Ok(spec.missing_channels(&missing))
    }

    /// Removes a monitor with its history; `false` if there is none with this id.
    pub async fn remove(&self, id: &MonitorId) -> Result<bool> {
        let removed = monitors::remove(self.database(), id).await?;
        self.inner.cache.refresh_one(id).await?;
        // If this fails, the next reconciliation removes it: the database is the source of truth.
        if let Err(error) = self.schedule().remove(id, RemovalReason::Deleted).await {
            tracing::warn!(%error, monitor = %id, "failed to remove a monitor from the schedule");
        }
        self.notify_nodes(id).await;
        Ok(removed)
    }

    /// Checks a monitor now. The result counts like that of a scheduled check.
    pub async fn check_now(&self, id: &MonitorId) -> Result<CheckNowOutcome> {
        let Some(monitor) = self.monitor(id).await? else { return Ok(CheckNowOutcome::Skipped) };
        if matches!(monitor.check, Check::Heartbeat(_)) {
            return Ok(CheckNowOutcome::Heartbeat);
        }
        let mut claim = self.claim_now(id).await?;
        if claim.is_none() && !monitor.spec.paused {
            // Its entry is missing, or another client has changed it.
            self.plan(&monitor).await?;
            claim = self.claim_now(id).await?;
        }
        let Some(claim) = claim else { return Ok(CheckNowOutcome::Skipped) };
        if claim.generation != monitor.generation {
            return Ok(CheckNowOutcome::Skipped);
        }
        let claimed = std::time::Instant::now();
        let observation = self.probe(&monitor).await;
        let recorded = self.record_result(&monitor, &claim, &observation, claimed).await?;
        self.inner.snapshot.invalidate();
        match recorded {
            Some(state) => Ok(CheckNowOutcome::Checked { observation: Box::new(observation), state }),
            None => Ok(CheckNowOutcome::Skipped),
        }
    }

    /// Records the signal of a job; `false` if no monitor has this token.
    pub async fn record_signal(&self, token: &Secret, record_signal: HeartbeatSignal) -> Result<bool> {
        let Some(monitor) = monitors::by_token(self.database(), token).await? else { return Ok(false) };
        let started = self.schedule().keys().begun(&monitor.id);
        if monitor.spec.paused {
            return Ok(true);
        }
        let now_ms = self.schedule().now_ms(self.schedule().shard_of(&monitor.id)).await?;
        let store = &self.inner.context.store;
        if record_signal == HeartbeatSignal::Started {
            let ttl = monitor.stale_after().min(crate::keys::Keys::BEGUN_TTL_MAX);
            let set = hob_store::cmd("SET")
                .arg(started)
                .arg(now_ms)
                .arg("PX")
                .arg(crate::schedule::millis(ttl))
                .clone();
            store.run::<()>(set).await?;
            return Ok(true);
        }
        // Before the store, which may lose the call: the deadline follows from it.
        monitors::set_called(self.database(), &monitor.id, unix_ms(now_ms)).await?;
        // A value that another client has written is ignored, and deleted below.
        let since = store.run::<Option<Text>>(hob_store::cmd("GET").arg(&started)).await;
        let since = repair::or_none(store, since, (&started, KeyType::String)).await?.flatten();
        let since: Option<u64> = since.and_then(|Text(since)| since.parse().ok());
        let observation = match record_signal {
            HeartbeatSignal::Failed => {
                Observation::failed(FailureClass::Reported, "the job reported a failure")
            }
            _ => Observation::reported(since.map(|since| now_ms.saturating_sub(since))),
        };
        let Some(claim) = self.claim_now(&monitor.id).await? else { return Ok(true) };
        self.record_result(&monitor, &claim, &observation, std::time::Instant::now()).await?;
        self.inner.snapshot.invalidate();
        store.run::<u64>(hob_store::cmd("DEL").arg(&started)).await?;
        Ok(true)
    }

    #[must_use]
    pub fn windows(&self) -> Arc<[Maintenance]> {
        self.inner.cache.windows()
    }

    /// Adds a maintenance window that is valid.
    pub async fn add_window(&self, spec: &MaintenanceSpec) -> Result<Maintenance> {
        let window = maintenance::add(self.database(), spec).await?;
        self.inner.cache.refresh_windows().await?;
        self.inner.status.invalidate();
        self.notify_pages(None);
        Ok(window)
    }

    pub async fn remove_window(&self, id: &str) -> Result<bool> {
        let removed = maintenance::remove(self.database(), id).await?;
        self.inner.cache.refresh_windows().await?;
        self.notify_pages(None);
        Ok(removed)
    }

    /// Notifies open pages of a change: the list, and the pages of one monitor.
    pub(crate) fn notify_pages(&self, monitor: Option<&MonitorId>) {
        let Some(changes) = self.inner.changes.get() else { return };
        changes.notify("uptime");
        if let Some(id) = monitor {
            changes.notify(&topic(id));
        }
    }

    /// Updates the schedule after a monitor was added or edited. If the store is unavailable, reconciliation does it later.
    pub(crate) async fn sync_schedule(&self, monitor: &Monitor) {
        let updated = if monitor.spec.paused {
            self.schedule().remove(&monitor.id, RemovalReason::Paused).await
        } else {
            self.plan(monitor).await
        };
        if let Err(error) = updated {
            tracing::warn!(%error, monitor = %monitor.id, "failed to update the schedule, reconciliation will do it");
        }
        self.inner.snapshot.invalidate();
        self.inner.wake.notify_one();
        self.notify_nodes(&monitor.id).await;
    }

    pub(crate) async fn plan(&self, monitor: &Monitor) -> Result<()> {
        let shard = self.schedule().shard_of(&monitor.id);
        let now_ms = self.schedule().now_ms(shard).await?;
        // A monitor that the store has lost, but not its shard, may have an open incident.
        let open = incidents::open_for(self.database(), &monitor.id).await?;
        let health = open.as_ref().map_or(MonitorHealth::NEW, health_of);
        let next_ms = match monitor.check {
            Check::Heartbeat(_) => monitor.next_ms(&health, now_ms),
            _ => now_ms,
        };
        let lease = monitor.timeout() + self.config().grace.get();
        let entry = ScheduleEntry { id: &monitor.id, generation: monitor.generation, lease, next_ms, health };
        if let Outcome::Lost { .. } = self.schedule().plan(entry).await? {
            // The rebuilt shard includes this monitor.
            self.rebuild(shard).await?;
        }
        Ok(())
    }

    /// Rebuilds a lost shard, once if several tasks find it lost.
    pub(crate) async fn rebuild(&self, shard: Shard) -> Result<()> {
        let before = self.schedule().epoch(shard);
        let _one_at_a_time = self.inner.rebuilding.lock().await;
        if self.schedule().epoch(shard) != before {
            return Ok(());
        }
        let grace = self.config().grace.get();
        self.schedule().rebuild(self.database(), shard, grace).await?;
        self.inner.wake.notify_one();
        Ok(())
    }

    async fn claim_now(&self, id: &MonitorId) -> Result<Option<crate::schedule::Claim>> {
        match self.schedule().claim_now(id).await? {
            Outcome::Done(claim) => Ok(claim),
            Outcome::Lost { .. } => {
                self.rebuild(self.schedule().shard_of(id)).await?;
                match self.schedule().claim_now(id).await? {
                    Outcome::Done(claim) => Ok(claim),
                    Outcome::Lost { .. } => Ok(None),
                }
            }
        }
    }

    /// Notifies other nodes and open pages that a monitor has changed.
    async fn notify_nodes(&self, id: &MonitorId) {
        let channel = self.schedule().keys().changed_channel();
        if let Err(error) = self.inner.context.store.bus().publish(channel, id.as_str()).await {
            tracing::debug!(%error, "failed to notify other nodes that a monitor changed");
        }
        self.notify_pages(Some(id));
    }
}

/// The topic of pages about one monitor. Characters that a topic may not have are replaced.
#[must_use]
pub fn topic(id: &MonitorId) -> String {
    let safe =
        |letter: char| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '_' };
    format!("uptime.{}", id.as_str().chars().map(safe).take(48).collect::<String>())
}
