//! The handle of the service: plans and runs, for the API, the console and the background tasks.

mod maintenance;

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use hob_database::{Migrations, Page, PageRequest, UnixMs};
use hob_load_generator::{Second, Totals};
use hob_service::{Live, Metric, ServiceContext};
use hob_web::{Card, Changes, MAX_SEARCH_HITS, Routes, SearchHit, Service};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use crate::config::Config;
use crate::database::seconds::{self, SecondReader};
use crate::database::{self, plans, runners, runs};
use crate::generator::{DryRun, Targets};
use crate::keys::{Keys, TestId};
use crate::plan::cache::{Cache, CachedPlan};
use crate::plan::catalog::{self, EditOutcome, PlanEntry, PlanId};
use crate::plan::{Plan, PlanSource};
use crate::results::report::{Report, RunnerCount};
use crate::routes::SERVICE;
use crate::run::lifecycle::{self, Actor, InsertOutcome, NewRun, Transition};
use crate::run::logs::{LogLevel, LogLine, RunLogs};
use crate::run::pending::PendingQueue;
use crate::run::views::RunViews;
use crate::run::{Run, RunEvent, RunState, Runner, coordinator};
use crate::{Error, card, demo, metrics, pages, routes};

pub use maintenance::Activity;

/// The load service. Clones share one state.
#[derive(Clone, Debug)]
pub struct Load {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) context: ServiceContext,
    pub(crate) config: Live<Config>,
    pub(crate) views: RunViews,
    pub(crate) logs: RunLogs,
    pub(crate) cache: Cache,
    queue: PendingQueue,
    /// Notified when a run may be ready to be claimed.
    pub(crate) work_available: Notify,
    /// The runs that this node generates load for.
    pub(crate) local_runs: Mutex<HashSet<TestId>>,
    dry_runs: Semaphore,
    /// Notifies open pages; set by `start`.
    changes: OnceLock<Changes>,
}

/// A request for a run of a plan.
#[derive(Clone, Debug, Default)]
pub struct RunRequest {
    /// By default the first run type of the plan.
    pub run_type: Option<String>,
    /// A higher priority starts first.
    pub priority: i32,
    pub max_users: Option<u32>,
    /// The number of nodes that generate load; 1 by default.
    pub runners: Option<u32>,
}

/// The result of a [`RunRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueOutcome {
    Queued(TestId),
    PlanNotFound,
    /// The plan has no run type of that name.
    RunTypeNotFound,
}

/// The result of [`Load::dry_run`].
#[derive(Clone, Debug)]
pub enum DryRunOutcome {
    Done(DryRun),
    RunTypeNotFound,
    /// Too many dry runs at the same time.
    Busy,
}

pub(crate) const MAX_RUNNERS: u32 = 64;
/// Dry runs at the same time on a node.
const MAX_DRY_RUNS: usize = 4;

impl Service for Load {
    type Config = Config;
    type Error = Error;

    const TITLE: &'static str = "Load";
    const HREF: &'static str = "/load";
    const ICON: &'static str = "M3 16a7.5 7.5 0 1 1 14 0M10 12l3.5-4.5";
    const SCHEMA: (&'static str, &'static str) =
        ("schemas/load.toml", include_str!("../../../schemas/load.toml"));
    const MIGRATIONS: Migrations = crate::MIGRATIONS;
    const METRICS: &'static [Metric] = metrics::METRICS;

    async fn open(context: &ServiceContext, config: Live<Config>) -> Result<Self, Error> {
        let keys = Keys::from_env(context.layout, &|name| std::env::var(name).ok())?;
        let (store, database) = (context.store.clone(), context.database.clone());
        Ok(Self {
            inner: Arc::new(Inner {
                views: RunViews::new(store.clone(), keys.clone()),
                logs: RunLogs::new(store.clone(), keys.clone()),
                queue: PendingQueue::new(store.clone(), keys.clone()),
                cache: Cache::new(store, keys, database),
                context: context.clone(),
                config,
                work_available: Notify::new(),
                local_runs: Mutex::default(),
                dry_runs: Semaphore::new(MAX_DRY_RUNS),
                changes: OnceLock::new(),
            }),
        })
    }

    fn start(&self, changes: &Changes) {
        let _ = self.inner.changes.set(changes.clone());
        let load = self.clone();
        self.inner.context.tasks.spawn("load runs", move |task| coordinator::work(load.clone(), task));
        let load = self.clone();
        self.inner.context.tasks.spawn("load views", move |task| load.clone().maintain(task));
    }

    fn routes(&self) -> Routes {
        routes::routes().merge(pages::routes()).with_state(self.clone())
    }

    async fn search(&self, query: &str) -> Result<Vec<SearchHit>, Error> {
        let newest = PageRequest::first(PageRequest::MAX_SIZE);
        let plans = self.plans(&newest).await?.rows;
        let plans = plans.into_iter().filter(|plan| SearchHit::matches(query, &[&plan.name]));
        let plans = plans.take(MAX_SEARCH_HITS).map(|plan| SearchHit {
            kind: "load plan",
            href: format!("/load/plans/{}", plan.id),
            detail: format!("version {}", plan.version),
            title: plan.name,
        });
        let runs = self.run_items(None, &newest).await?.rows;
        let runs = runs
            .into_iter()
            .filter(|item| SearchHit::matches(query, &[item.run.id.as_str(), &item.plan_name]));
        let runs = runs.take(MAX_SEARCH_HITS).map(|item| SearchHit {
            kind: "load run",
            href: crate::pages::run_path(&item.run.id),
            title: item.run.id.to_string(),
            detail: item.plan_name,
        });
        Ok(plans.chain(runs).collect())
    }

    async fn card(&self) -> Card {
        card::card(self).await
    }

    async fn demo(&self) -> Result<(), Error> {
        demo::start(self).await
    }
}

impl Load {
    /// Makes open pages reload what they show.
    pub(crate) fn notify_pages(&self) {
        if let Some(changes) = self.inner.changes.get() {
            changes.notify(SERVICE);
        }
    }

    /// The hosts that may be tested.
    pub(crate) fn targets(&self) -> Targets {
        self.config().targets(&self.inner.context.outbound)
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        self.inner.config.current()
    }

    pub async fn add_plan(&self, plan: &PlanSource) -> Result<PlanId, Error> {
        catalog::add(&self.inner.context.database, plan).await
    }

    /// Adds a version to a plan. If `expected` is given, the version is added only if `expected` is the newest version.
    pub async fn edit_plan(
        &self,
        id: PlanId,
        expected: Option<u32>,
        plan: &PlanSource,
    ) -> Result<EditOutcome, Error> {
        let mut run_types = self.run_type_names(id).await?;
        let outcome = catalog::edit(&self.inner.context.database, id, expected, plan).await?;
        if let EditOutcome::Saved(version) = outcome {
            run_types.extend(plan.read()?.run_types.into_iter().map(|run_type| run_type.name));
            self.invalidate_cache(id, version, &run_types).await;
        }
        Ok(outcome)
    }

    pub async fn delete_plan(&self, id: PlanId) -> Result<bool, Error> {
        let run_types = self.run_type_names(id).await?;
        let version = self.plan(id).await?.map_or(0, |plan| plan.version);
        let deleted = plans::mark_deleted(&self.inner.context.database, id).await?;
        // The next version, which does not exist. It prevents a node that has just read the deleted plan from caching
        // it.
        self.invalidate_cache(id, version + 1, &run_types).await;
        Ok(deleted)
    }

    /// The newest version of a plan.
    pub async fn plan(&self, id: PlanId) -> Result<Option<CachedPlan>, Error> {
        self.inner.cache.plan(id).await
    }

    pub async fn plans(&self, request: &PageRequest) -> Result<Page<PlanEntry>, Error> {
        Ok(plans::page(&self.inner.context.database, request).await?)
    }

    pub async fn plan_entry(&self, id: PlanId) -> Result<Option<PlanEntry>, Error> {
        Ok(plans::find(&self.inner.context.database, id).await?)
    }

    /// The numbers and times of the versions of a plan, newest first.
    pub async fn plan_versions(&self, id: PlanId) -> Result<Vec<(u32, UnixMs)>, Error> {
        Ok(plans::versions(&self.inner.context.database, id).await?)
    }

    pub async fn plan_version(&self, id: PlanId, version: u32) -> Result<Option<PlanSource>, Error> {
        Ok(plans::version(&self.inner.context.database, id, version).await?.map(|(plan, _)| plan))
    }

    /// Runs the steps of a plan once with one user, on this node. Nothing is stored.
    pub async fn dry_run(&self, plan: &PlanSource, run_type: Option<&str>) -> Result<DryRunOutcome, Error> {
        let plan = plan.read()?;
        let Some(run_type) = run_type.map_or(Some(0), |name| plan.run_type(name)) else {
            return Ok(DryRunOutcome::RunTypeNotFound);
        };
        let Ok(_permit) = self.inner.dry_runs.try_acquire() else { return Ok(DryRunOutcome::Busy) };
        Ok(DryRunOutcome::Done(DryRun::run(plan, run_type, &self.targets()).await?))
    }

    /// Queues a run of the newest version of a plan.
    pub async fn queue_run(&self, id: PlanId, request: &RunRequest) -> Result<QueueOutcome, Error> {
        let Some(cached) = self.plan(id).await? else { return Ok(QueueOutcome::PlanNotFound) };
        let plan = cached.read()?;
        let run_type = match &request.run_type {
            None => 0,
            Some(name) => match plan.run_type(name) {
                Some(run_type) => run_type,
                None => return Ok(QueueOutcome::RunTypeNotFound),
            },
        };
        self.targets().check(&plan, run_type)?;
        let run_id = new_id(&plan.name, id);
        match self.enqueue(&run_id, id, plan, run_type, request).await? {
            InsertOutcome::PlanNotFound => Ok(QueueOutcome::PlanNotFound),
            InsertOutcome::Inserted | InsertOutcome::Exists => Ok(QueueOutcome::Queued(run_id)),
        }
    }

    async fn enqueue(
        &self,
        id: &TestId,
        plan_id: PlanId,
        plan: Plan,
        run_type: usize,
        request: &RunRequest,
    ) -> Result<InsertOutcome, Error> {
        let config = self.config();
        let max_users = request.max_users.unwrap_or_else(|| plan.max_users(run_type)).min(config.max_users);
        let run = NewRun {
            id: id.clone(),
            plan_id,
            run_type: plan.run_types[run_type].name.clone(),
            priority: request.priority,
            max_users,
            target_users: plan.capped(max_users, run_type).target_users(run_type),
            runners: request.runners.unwrap_or(1).clamp(1, MAX_RUNNERS),
        };
        let database = &self.inner.context.database;
        let outcome = lifecycle::enqueue(database, &run, config.aging_interval.get()).await?;
        if outcome == InsertOutcome::Inserted {
            self.publish_state(id).await;
            self.inner.work_available.notify_one();
        }
        Ok(outcome)
    }

    pub async fn run(&self, id: &TestId) -> Result<Option<Run>, Error> {
        Ok(runs::find(&self.inner.context.database, id).await?)
    }

    pub async fn runs(&self, plan: Option<PlanId>, request: &PageRequest) -> Result<Page<Run>, Error> {
        Ok(runs::page(&self.inner.context.database, plan, request).await?)
    }

    /// The queue, in the order in which its runs start.
    pub async fn pending(&self) -> Result<Vec<Run>, Error> {
        Ok(runs::pending(&self.inner.context.database).await?)
    }

    pub async fn runners(&self, run: &Run) -> Result<Vec<Runner>, Error> {
        Ok(runners::list(&self.inner.context.database, &run.id, run.epoch).await?)
    }

    pub async fn pause(&self, id: &TestId) -> Result<Transition, Error> {
        self.change(id, RunEvent::Pause, None, "Paused").await
    }

    pub async fn resume(&self, id: &TestId) -> Result<Transition, Error> {
        self.change(id, RunEvent::Resume, None, "Running").await
    }

    pub async fn cancel(&self, id: &TestId) -> Result<Transition, Error> {
        self.change(id, RunEvent::Cancel, Some(RunState::Cancelled), "Cancelled").await
    }

    /// The report of a run. Before the end of the run, it covers the measurements so far.
    pub async fn report(&self, run: &Run) -> Result<Option<Report>, Error> {
        if let Some(report) = runs::report(&self.inner.context.database, &run.id).await? {
            // A run whose plan was not found has no report.
            return Ok(serde_json::from_str(&report)?);
        }
        let Some((plan, run_type)) = self.pinned_plan(run).await? else { return Ok(None) };
        let mut totals = Totals::new(&plan);
        for second in self.seconds(run, 0, usize::MAX).await? {
            totals.add(&second);
        }
        let mut report = Report::new(&plan, run_type, run.start_at.unwrap_or(run.queued_at).0, &totals);
        // Until the run starts, further runners may join.
        report.runners = match run.start_at {
            Some(_) => Some(RunnerCount::of(run, &self.runners(run).await?)),
            None => None,
        };
        Ok(Some(report))
    }

    /// The seconds of a run from `from` on, merged over its runners.
    pub async fn seconds(&self, run: &Run, from: u32, limit: usize) -> Result<Vec<Second>, Error> {
        let mut reader = SecondReader::new(run, from);
        let mut seconds = Vec::new();
        while seconds.len() < limit
            && let Some(merged) = reader.next(&self.inner.context.database).await?
        {
            seconds.push(merged.second);
        }
        Ok(seconds)
    }

    /// The number of requests in each of the newest seconds of a run.
    pub(crate) async fn newest_requests(&self, run: &Run, seconds: u32) -> Result<Vec<u64>, Error> {
        let newest = seconds::newest(&self.inner.context.database, run).await?;
        let from = newest.map_or(0, |newest| (newest + 1).saturating_sub(seconds));
        let seconds = self.seconds(run, from, seconds as usize).await?;
        Ok(seconds.iter().map(Second::requests).collect())
    }

    /// The plan version that a run was queued with, limited to its users, and the index of its run type.
    pub async fn pinned_plan(&self, run: &Run) -> Result<Option<(Plan, usize)>, Error> {
        let Some(plan) = self.plan_version(run.plan_id, run.plan_version).await? else { return Ok(None) };
        let plan = plan.read()?;
        let run_type = plan.run_type(&run.run_type).unwrap_or(0);
        let max_users = run.max_users.unwrap_or(u32::MAX).min(self.config().max_users);
        Ok(Some((plan.capped(max_users, run_type), run_type)))
    }

    #[must_use]
    pub fn views(&self) -> &RunViews {
        &self.inner.views
    }

    #[must_use]
    pub fn logs(&self) -> &RunLogs {
        &self.inner.logs
    }

    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.inner.cache
    }

    async fn change(
        &self,
        id: &TestId,
        event: RunEvent,
        ending: Option<RunState>,
        message: &str,
    ) -> Result<Transition, Error> {
        let database = &self.inner.context.database;
        let transition = lifecycle::change(database, id, Actor::User, event, ending, message).await?;
        if let Transition::Applied(_) = transition {
            self.publish_state(id).await;
            self.inner.work_available.notify_one();
        }
        Ok(transition)
    }

    /// Writes the state of a run to its views and its log, and notifies live clients. Failures are logged: the views are
    /// written again within seconds.
    pub(crate) async fn publish_state(&self, id: &TestId) {
        let written = self.write_state(id).await;
        self.notify_pages();
        if let Err(error) = written
            && !error.is_reported()
        {
            tracing::warn!(run = %id, %error, "failed to publish the state of a load run");
        }
    }

    async fn write_state(&self, id: &TestId) -> Result<(), Error> {
        let Some(run) = self.run(id).await? else { return Ok(()) };
        let progress = self.inner.views.progress(&run).await?;
        if run.state.is_final() {
            self.inner.views.finish(&run, progress).await?;
        } else {
            self.inner.views.status(&run, progress).await?;
        }
        self.inner.views.notify(&run).await?;
        let at = database::now(&self.inner.context.database).await?.0;
        let is_error = matches!(run.state, RunState::Failed | RunState::Lost);
        let level = if is_error { LogLevel::Error } else { LogLevel::Info };
        let line = LogLine::new(at, level, format!("{}: {}", run.state, run.message));
        self.inner.logs.write(id, &[line]).await
    }

    async fn run_type_names(&self, id: PlanId) -> Result<Vec<String>, Error> {
        let Some(cached) = self.plan(id).await? else { return Ok(vec![]) };
        Ok(cached.read()?.run_types.into_iter().map(|run_type| run_type.name).collect())
    }

    async fn invalidate_cache(&self, id: PlanId, version: u32, run_types: &[String]) {
        if let Err(error) = self.inner.cache.invalidate(id, version, run_types).await {
            // Until the cache expires, readers may get the previous version.
            tracing::warn!(plan = %id, %error, "failed to invalidate a cached load plan");
        }
    }
}

/// `checkout_1_20250828183842_3f9a`: the documented form, with a random part that distinguishes runs of the same
/// second.
fn new_id(name: &str, plan: PlanId) -> TestId {
    let plain = |character: char| if character.is_ascii_alphanumeric() { character } else { '-' };
    let name: String = name.chars().take(40).map(plain).collect();
    let time = jiff::Timestamp::now().strftime("%Y%m%d%H%M%S");
    let id = format!("{name}_{plan}_{time}_{:04x}", rand::random::<u16>());
    TestId::new(id).expect("only letters, digits, - and _, and at most 80 bytes")
}
