//! What a status page shows, read at one moment, and the copies that a node keeps.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_database::UnixMs;
use hob_service::Task;
use hob_web::Problem;
use hob_web::components::Tone;
use parking_lot::Mutex;

use super::view;
use crate::database::{status_pages, updates};
use crate::error::Result;
use crate::incident::{Alerting, Incident, Update};
use crate::keys::MonitorId;
use crate::monitor::Monitor;
use crate::monitor::history::{self, DAY_MS, Downtime, Period};
use crate::monitor::maintenance::Maintenance;
use crate::pages::PublicState;
use crate::schedule::snapshot::Snapshot;
use crate::schedule::state::MonitorState;
use crate::status::attempts::Attempts;
use crate::status::language::Words;
use crate::status::{Slug, StatusPage};
use crate::uptime::Uptime;

/// How far back incidents are listed.
const LISTED_MS: i64 = 14 * DAY_MS;
const MAX_LISTED: usize = 50;
/// How far ahead maintenance is announced.
const ANNOUNCED_MS: i64 = 30 * DAY_MS;
/// Systems on one page of a status page, so that it stays small.
const PAGE_SIZE: usize = 20;
/// Systems of a status page.
const MAX_SYSTEMS: usize = 5_000;
/// How often a page is read at most, however many readers there are.
const MAX_AGE: Duration = Duration::from_secs(5);
/// How often a page without readers is read, so that there is a copy if the store or the database goes away.
const REFRESH_EVERY: Duration = Duration::from_secs(60);
/// How long a reader waits for a new copy if there is an old one.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause after an attempt that failed.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// The last copy of each page.
#[derive(Debug, Default)]
pub(crate) struct StatusCache {
    copies: Mutex<HashMap<Slug, Copy>>,
    /// Held while a page is read.
    reading: tokio::sync::Mutex<()>,
    /// Limits wrong passwords and subscriptions.
    pub(super) attempts: Attempts,
}

#[derive(Clone, Debug)]
struct Copy {
    /// The last attempt to read it, successful or not.
    tried_at: Instant,
    read_at: Instant,
    status: Arc<PublicStatus>,
}

/// A page and what it shows.
#[derive(Debug)]
pub(super) struct PublicStatus {
    pub(super) page: StatusPage,
    pub(super) systems: Vec<Arc<Monitor>>,
    windows: Arc<[Maintenance]>,
    snapshot: Arc<Snapshot>,
    pub(super) downtime: Downtime,
    updates: HashMap<String, Vec<Update>>,
    pub(super) now: UnixMs,
    pub(super) rendered: view::RenderedPages,
}

/// The newest copy of a page, of now if possible. Fails only if there is none.
pub(super) async fn current(uptime: &Uptime, slug: &Slug) -> Result<Arc<PublicStatus>, Problem> {
    let cache = &uptime.inner.status;
    let copy = cache.copies.lock().get(slug).cloned();
    let Some(copy) = copy else {
        let _one_at_a_time = cache.reading.lock().await;
        return read_page(uptime, slug).await?.ok_or_else(|| Problem::not_found("status page"));
    };
    if copy.is_current() {
        return Ok(copy.status);
    }
    let read = async {
        let _one_at_a_time = match cache.reading.try_lock() {
            Ok(lock) => lock,
            // The last attempt failed, and another request makes the next one.
            Err(_) if copy.tried_at > copy.read_at => return Ok(Some(Arc::clone(&copy.status))),
            // Otherwise readers at the same moment would see different states.
            Err(_) => cache.reading.lock().await,
        };
        let current = cache.copies.lock().get(slug).filter(|copy| copy.is_current()).cloned();
        match current {
            Some(copy) => Ok(Some(copy.status)),
            None => read_page(uptime, slug).await,
        }
    };
    match tokio::time::timeout(PATIENCE, read).await {
        Ok(Ok(Some(status))) => Ok(status),
        Ok(Ok(None)) => Err(Problem::not_found("status page")),
        Ok(Err(error)) => {
            tracing::debug!(%error, page = %slug, "failed to read a status page, showing the last copy");
            Ok(cache.keep(slug, copy))
        }
        Err(_) => Ok(cache.keep(slug, copy)),
    }
}

impl Copy {
    /// Whether it is new enough, or cannot be replaced at the moment.
    fn is_current(&self) -> bool {
        self.read_at.elapsed() < MAX_AGE || self.tried_at.elapsed() < RETRY_AFTER
    }
}

impl StatusCache {
    /// Keeps an old copy after an attempt that failed.
    fn keep(&self, slug: &Slug, copy: Copy) -> Arc<PublicStatus> {
        if let Some(known) = self.copies.lock().get_mut(slug) {
            known.tried_at = Instant::now();
        }
        copy.status
    }

    /// The next reader sees the changes that this node has made.
    pub(crate) fn invalidate(&self) {
        let old = Instant::now().checked_sub(REFRESH_EVERY).unwrap_or_else(Instant::now);
        for copy in self.copies.lock().values_mut() {
            (copy.tried_at, copy.read_at) = (old, old);
        }
    }
}

/// Reads a page; `None` if there is none with this slug.
async fn read_page(uptime: &Uptime, slug: &Slug) -> Result<Option<Arc<PublicStatus>>> {
    let cache = &uptime.inner.status;
    let page = if slug.is_default() {
        Some(StatusPage::default_page(&uptime.config()))
    } else {
        status_pages::by_slug(uptime.database(), slug).await?
    };
    let Some(page) = page else {
        cache.copies.lock().remove(slug);
        return Ok(None);
    };
    let status = Arc::new(PublicStatus::read(uptime, page).await?);
    let now = Instant::now();
    let copy = Copy { tried_at: now, read_at: now, status: Arc::clone(&status) };
    cache.copies.lock().insert(slug.clone(), copy);
    Ok(Some(status))
}

/// Starts the task that keeps a copy of every page.
pub(crate) fn start(uptime: &Uptime) {
    let this = uptime.clone();
    uptime.inner.context.tasks.spawn("uptime: copy status pages", move |task| copy_pages(this.clone(), task));
}

async fn copy_pages(uptime: Uptime, task: Task) {
    loop {
        if let Err(error) = copy_all(&uptime).await {
            tracing::debug!(%error, "failed to read status pages, keeping the last copies");
        }
        task.heartbeat();
        if !task.pause(REFRESH_EVERY).await {
            return;
        }
    }
}

async fn copy_all(uptime: &Uptime) -> Result<()> {
    let mut slugs = vec![Slug::of_default_page()];
    slugs.extend(status_pages::all(uptime.database()).await?.into_iter().map(|page| page.slug));
    for slug in &slugs {
        let fresh = |copy: &Copy| copy.read_at.elapsed() < REFRESH_EVERY;
        if !uptime.inner.status.copies.lock().get(slug).is_some_and(fresh) {
            let _one_at_a_time = uptime.inner.status.reading.lock().await;
            read_page(uptime, slug).await?;
        }
    }
    uptime.inner.status.copies.lock().retain(|slug, _| slugs.contains(slug));
    Ok(())
}

impl PublicStatus {
    async fn read(uptime: &Uptime, page: StatusPage) -> Result<Self> {
        let monitors = uptime.monitors();
        let shown = monitors.iter().filter(|monitor| page.shows(monitor)).take(MAX_SYSTEMS);
        let systems: Vec<Arc<Monitor>> = shown.cloned().collect();
        let ids: Vec<MonitorId> = systems.iter().map(|monitor| monitor.id.clone()).collect();
        let now = UnixMs::now();
        let mut status = Self {
            snapshot: uptime.snapshot().await?,
            downtime: history::availability(uptime.database(), &ids, now).await?,
            windows: uptime.windows(),
            updates: HashMap::new(),
            rendered: view::RenderedPages::default(),
            page,
            systems,
            now,
        };
        let listed = status.incidents().into_iter().map(|(_, incident)| incident.id.as_str());
        status.updates = updates::of(uptime.database(), listed).await?;
        Ok(status)
    }

    pub(super) fn pages(&self) -> usize {
        self.systems.len().div_ceil(PAGE_SIZE).max(1)
    }

    /// The systems of a page, from 1.
    pub(super) fn systems_of(&self, page: usize) -> &[Arc<Monitor>] {
        let start = (page.saturating_sub(1) * PAGE_SIZE).min(self.systems.len());
        &self.systems[start..(start + PAGE_SIZE).min(self.systems.len())]
    }

    pub(super) fn state(&self, monitor: &Monitor) -> PublicState {
        let covered = self.windows.iter().any(|window| window.covers(monitor, self.now));
        let alerting = if covered { Alerting::Suppressed } else { Alerting::Enabled };
        PublicState::new(self.snapshot.state(monitor), alerting)
    }

    /// The state of all systems.
    pub(super) fn overall(&self, words: &Words) -> (Tone, &'static str) {
        use PublicState::{Checked, Maintenance};
        let states: Vec<PublicState> = self.systems.iter().map(|monitor| self.state(monitor)).collect();
        let is_down =
            |state: &&PublicState| matches!(state, Checked(MonitorState::Down | MonitorState::Recovering));
        let down = states.iter().filter(is_down).count();
        let in_maintenance = states.contains(&Maintenance);
        let unknown =
            states.iter().any(|state| matches!(state, Checked(MonitorState::Stale | MonitorState::Pending)));
        match (states.len(), down) {
            (0, _) => (Tone::Idle, words.none_published),
            (_, 0) if in_maintenance => (Tone::Busy, words.some_in_maintenance),
            (_, 0) if unknown => (Tone::Warn, words.some_unknown),
            (_, 0) => (Tone::Good, words.all_up),
            (all, down) if all == down => (Tone::Bad, words.all_down),
            _ => (Tone::Bad, words.some_down),
        }
    }

    /// Uptime of all systems over 90 days, each for as long as it was monitored; `None` without systems.
    pub(super) fn uptime(&self) -> Option<f64> {
        let (mut down_ms, mut all_ms) = (0, 0);
        for monitor in &self.systems {
            let from = (self.now.0 - Period::Quarter.length_ms()).max(monitor.created_at.0);
            down_ms += self.downtime.down_ms(&monitor.id, from, self.now.0);
            all_ms += (self.now.0 - from).max(0);
        }
        (!self.systems.is_empty()).then(|| 100.0 * (1.0 - down_ms as f64 / all_ms.max(1) as f64).max(0.0))
    }

    /// Windows that are active or planned and cover a system of the page, with the names of these systems.
    pub(super) fn windows(&self) -> impl Iterator<Item = (&Maintenance, Vec<&str>)> {
        let soon = |window: &&Maintenance| {
            window.spec.starts_at_ms < self.now.0 + ANNOUNCED_MS && window.spec.ends_at_ms > self.now.0
        };
        let covered = |window: &Maintenance| {
            let start = UnixMs(window.spec.starts_at_ms);
            let covered = self.systems.iter().filter(|monitor| window.covers(monitor, start));
            covered.map(|monitor| monitor.spec.name.as_str()).collect::<Vec<_>>()
        };
        // The list has the latest first.
        let windows = self.windows.iter().rev().filter(soon);
        windows.map(move |window| (window, covered(window))).filter(|(_, names)| !names.is_empty())
    }

    /// Incidents of the page's systems, the newest first.
    pub(super) fn incidents(&self) -> Vec<(&Monitor, &Incident)> {
        let since = self.now.0 - LISTED_MS;
        let all = self.systems.iter().flat_map(|monitor| {
            self.downtime.incidents(&monitor.id).iter().map(|incident| (&**monitor, incident))
        });
        let mut listed: Vec<(&Monitor, &Incident)> = all
            .filter(|(_, incident)| incident.opened_at.0 > since || incident.resolved_at.is_none())
            .collect();
        listed.sort_by_key(|(_, incident)| std::cmp::Reverse(incident.opened_at));
        listed.truncate(MAX_LISTED);
        listed
    }

    /// The updates of an incident, the newest first.
    pub(super) fn updates_of(&self, incident: &Incident) -> &[Update] {
        self.updates.get(&incident.id).map_or(&[], Vec::as_slice)
    }
}
