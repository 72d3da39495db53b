//! The handle of the service, and its background tasks.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use hob_database::{Migrations, Page, PageRequest, UnixMs};
use hob_service::{Live, Metric, Samples, ServiceContext, Task};
use hob_web::{Card, Changes, MAX_SEARCH_HITS, Routes, SearchHit, Service};
use tokio::task::JoinSet;

use crate::config::Config;
use crate::database::{plans, runs};
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::plan::retry::FailureClass;
use crate::plan::secrets;
use crate::plan::{Plan, PlanName, StoredPlan};
use crate::quota::{MAX_HOLD, PublicQuota, QuotaFile, Quotas};
use crate::run::client::HttpClient;
use crate::run::driver::Driver;
use crate::run::forecast::{self, Forecast, PlanCost};
use crate::run::host_permits::HostPermits;
use crate::run::item::{self, ItemState, ItemSummary, Progress};
use crate::run::runs::Runs;
use crate::run::seed;
use crate::run::view::{View, ViewOutcome, Views};
use crate::run::{self, Run, RunAction, RunId, RunState};
use crate::sink::Output;
use crate::{card, demo, metrics, pages, routes};

/// How often a node looks for runs to execute. While no run is running, it waits for a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// How long a node waits after it failed to look for runs.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// How often a node looks for expired claims.
const RECLAIM_INTERVAL: Duration = Duration::from_secs(1);
/// How often the views of runs that no node executes are written again.
const VIEW_INTERVAL: Duration = Duration::from_secs(5);
const CLEANUP_INTERVAL: Duration = Duration::from_secs(600);
/// How long throughput is stored. The page of a run shows the last half hour.
const THROUGHPUT_RETENTION: Duration = Duration::from_secs(3600);
/// Hosts whose concurrency limits are kept in memory.
const MAX_HOSTS: usize = 10_000;

/// The pipeline service. Clones share their state.
#[derive(Clone, Debug)]
pub struct Pipelines {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) context: ServiceContext,
    pub(crate) config: Live<Config>,
    pub(crate) folder: PathBuf,
    runs: Runs,
    pub(crate) quotas: Quotas,
    pub(crate) views: Views,
    pub(crate) http: HttpClient,
    /// Notifies open pages; not set in a terminal.
    changes: OnceLock<Changes>,
    /// Concurrency limits by host and the number that a plan allows.
    hosts: Mutex<HashMap<(String, u32), Arc<HostPermits>>>,
}

/// What a look for running runs found.
enum Found {
    Nothing,
    Runs,
    Error,
}

impl Service for Pipelines {
    type Config = Config;
    type Error = Error;

    const TITLE: &'static str = "Pipelines";
    const HREF: &'static str = "/pipelines";
    const ICON: &'static str = "M3 5h5v4H3zm9 6h5v4h-5zM8 7h2.5q2 0 2 2v2";
    const SCHEMA: (&'static str, &'static str) =
        ("schemas/pipeline.toml", include_str!("../../../schemas/pipeline.toml"));
    const MIGRATIONS: Migrations = crate::MIGRATIONS;
    const METRICS: &'static [Metric] = metrics::METRICS;
    const USES_SECRETS: bool = true;

    async fn open(context: &ServiceContext, config: Live<Config>) -> Result<Self> {
        let keys = keys(context)?;
        let public = PublicQuota::of(&config.current())?;
        let quotas = Quotas::new(&context.store, &keys, &context.database, public);
        Self::open_with(context, config, &keys, quotas)
    }

    /// Starts executing runs.
    fn start(&self, changes: &Changes) {
        let _ = self.shared.changes.set(changes.clone());
        let tasks = &self.shared.context.tasks;
        let this = self.clone();
        tasks.spawn("pipeline runs", move |task| this.clone().drive_runs(task));
        let this = self.clone();
        tasks.spawn("pipeline reaper", move |task| this.clone().reclaim(task));
        let this = self.clone();
        tasks.spawn("pipeline views", move |task| this.clone().restore_views(task));
        let this = self.clone();
        tasks.spawn("pipeline clean-up", move |task| this.clone().clean_up(task));
    }

    fn routes(&self) -> Routes {
        routes::routes().merge(pages::routes()).with_state(self.clone())
    }

    async fn card(&self) -> Card {
        card::card(self).await
    }

    async fn demo_config(mut config: Config, folder: &Path) -> Result<Config> {
        config.folder = folder.join("pipelines");
        Ok(config)
    }

    async fn demo(&self) -> Result<()> {
        demo::start(self).await
    }

    async fn search(&self, query: &str) -> Result<Vec<SearchHit>> {
        let plans = self.plans().await?;
        let plans = plans.into_iter().filter(|plan| SearchHit::matches(query, &[plan.name.as_str()]));
        let plans = plans.take(MAX_SEARCH_HITS).map(|plan| SearchHit {
            kind: "pipeline plan",
            href: "/pipelines#plans".to_owned(),
            title: plan.name.to_string(),
            detail: String::new(),
        });
        let runs = self.runs(&PageRequest::first(PageRequest::MAX_SIZE)).await?.rows;
        let runs =
            runs.into_iter().filter(|run| SearchHit::matches(query, &[run.id.as_str(), run.plan.as_str()]));
        let runs = runs.take(MAX_SEARCH_HITS).map(|run| SearchHit {
            kind: "pipeline run",
            href: crate::pages::href(&run.id),
            title: run.id.to_string(),
            detail: run.plan.to_string(),
        });
        Ok(plans.chain(runs).collect())
    }

    async fn samples(&self, samples: &mut Samples) -> Result<()> {
        metrics::current(self, samples).await
    }
}

/// The keys, as the environment variables of the schema set them.
fn keys(context: &ServiceContext) -> Result<Keys> {
    Ok(Keys::from_env(context.layout, &|name| std::env::var(name).ok())?)
}

impl Pipelines {
    /// Opens pipelines whose quotas are in a file that other processes share.
    pub async fn open_with_file(context: &ServiceContext, config: Live<Config>, file: &Path) -> Result<Self> {
        let keys = keys(context)?;
        let public = PublicQuota::of(&config.current())?;
        let quotas = QuotaFile::open(file).await?.quotas(&context.store, &keys, public);
        Self::open_with(context, config, &keys, quotas)
    }

    fn open_with(
        context: &ServiceContext,
        config: Live<Config>,
        keys: &Keys,
        quotas: Quotas,
    ) -> Result<Self> {
        let settings = config.current();
        let http = HttpClient::new(&context.outbound).map_err(|error| Error::Conflict(error.to_string()))?;
        let shared = Shared {
            runs: Runs::new(&context.database),
            quotas,
            views: Views::new(&context.store, keys, &context.database),
            folder: settings.folder.clone(),
            context: context.clone(),
            config,
            http,
            changes: OnceLock::new(),
            hosts: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    pub fn quotas(&self) -> &Quotas {
        &self.shared.quotas
    }

    /// Validates and saves a plan. Defines its quota if the plan has limits.
    pub async fn put_plan(&self, text: &str) -> Result<Plan> {
        let plan = Plan::parse(text)?;
        secrets::check_plan(&self.shared.context.secrets, &plan)?;
        match &plan.limits {
            Some(limits) => self.shared.quotas.define(&plan.quota, limits).await?,
            None => drop(self.shared.quotas.definition(&plan.quota).await?),
        }
        let stored = &plan;
        self.shared
            .context
            .database
            .write(|tx| async move { plans::put(&tx, &stored.name, &stored.text).await })
            .await?;
        Ok(plan)
    }

    pub async fn plan(&self, name: &PlanName) -> Result<StoredPlan> {
        let found = plans::find(&self.shared.context.database, name).await?;
        found.ok_or_else(|| Error::not_found("pipeline", name))
    }

    pub async fn plans(&self) -> Result<Vec<StoredPlan>> {
        Ok(plans::list(&self.shared.context.database).await?)
    }

    /// Starts a run of a plan. The default id is the plan's name and the time.
    pub async fn start_run(&self, plan: &PlanName, id: Option<RunId>) -> Result<Run> {
        let plan = Plan::parse(&self.plan(plan).await?.text)?;
        self.check_secrets(&plan)?;
        // No colons: the id becomes part of file names.
        let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%.3fZ");
        let id = id.map_or_else(|| format!("{}_{now}", plan.name).parse(), Ok)?;
        let run = run::start(&self.shared.context.database, &id, &plan).await?;
        tracing::info!(run = %run.id, "pipeline run started");
        Ok(run)
    }

    /// Checks that the secrets of a plan are set.
    pub fn check_secrets(&self, plan: &Plan) -> Result<()> {
        secrets::check_readable(&self.shared.context.secrets, plan)
    }

    pub async fn run(&self, id: &RunId) -> Result<Run> {
        self.shared.runs.run(id).await
    }

    pub async fn runs(&self, request: &PageRequest) -> Result<Page<Run>> {
        self.shared.runs.runs(request).await
    }

    /// The newest run of a plan, in any state.
    pub async fn newest(&self, plan: &PlanName) -> Result<Option<Run>> {
        self.shared.runs.newest(plan).await
    }

    /// Pauses, resumes, cancels or archives a run.
    pub async fn apply(&self, id: &RunId, action: RunAction) -> Result<Run> {
        let run = self.shared.runs.apply(id, action).await?;
        self.publish_view(id).await;
        Ok(run)
    }

    /// Retries dead letters, all or those of a class. A completed run is running again afterwards.
    pub async fn replay(&self, id: &RunId, class: Option<FailureClass>) -> Result<u64> {
        let back = self.shared.runs.replay(id, class).await?;
        self.publish_view(id).await;
        Ok(back)
    }

    async fn publish_view(&self, id: &RunId) {
        self.notify_pages();
        if let Err(error) = self.shared.publish_view(id).await {
            tracing::debug!(run = %id, %error, "failed to publish the view of a pipeline run");
        }
    }

    pub async fn progress(&self, id: &RunId) -> Result<Progress> {
        self.shared.runs.progress(id).await
    }

    /// What the sinks of a run have received.
    pub async fn outputs(&self, id: &RunId) -> Result<Vec<Output>> {
        self.shared.runs.outputs(id).await
    }

    pub async fn items(
        &self,
        id: &RunId,
        state: Option<ItemState>,
        class: Option<FailureClass>,
        request: &PageRequest,
    ) -> Result<Page<ItemSummary>> {
        self.shared.runs.items(id, state, class, request).await
    }

    /// Estimates when a run will be done.
    pub async fn forecast(&self, id: &RunId) -> Result<Forecast> {
        let run = self.run(id).await?;
        let plan = Plan::parse(&run.text)?;
        let progress = self.progress(id).await?;
        let usage = self.shared.quotas.usage(&plan.quota).await?;
        Ok(forecast::forecast(&plan, &run, &progress, &usage))
    }

    /// Estimates the cost of a plan without making calls.
    pub async fn cost(&self, plan: &Plan) -> Result<PlanCost> {
        let limits = match &plan.limits {
            Some(limits) => limits.clone(),
            None => self.shared.quotas.definition(&plan.quota).await?.limits.clone(),
        };
        let items = seed::count(plan, &self.shared.folder).await?;
        Ok(forecast::cost(plan, items, &limits))
    }

    /// Makes open pages reload their content.
    pub(crate) fn notify_pages(&self) {
        self.shared.notify_pages();
    }

    async fn drive_runs(self, task: Task) {
        let mut drivers: JoinSet<RunId> = JoinSet::new();
        let mut driven: HashMap<RunId, ()> = HashMap::new();
        let mut changed = self.shared.context.database.wakeups(runs::CHANGED);
        loop {
            let mut found = Found::Nothing;
            while let Some(ended) = drivers.try_join_next() {
                if let Ok(run) = ended {
                    driven.remove(&run);
                } else {
                    // A panic does not tell which run it was, so all drivers are restarted.
                    driven.clear();
                    drivers.shutdown().await;
                }
            }
            match runs::running(&self.shared.context.database).await {
                Ok(running) => {
                    if !running.is_empty() || !driven.is_empty() {
                        found = Found::Runs;
                    }
                    let max = self.shared.config.current().max_concurrent_runs as usize;
                    for id in running {
                        if driven.len() < max && !driven.contains_key(&id) {
                            driven.insert(id.clone(), ());
                            let stop = self.shared.context.tasks.stop_token().child_token();
                            drivers.spawn(Arc::clone(&self.shared).drive(id, stop));
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to look for pipeline runs");
                    found = Found::Error;
                }
            }
            task.heartbeat();
            metrics::runs_driven(driven.len());
            let go_on = match found {
                Found::Nothing => task.wait(changed.wait(POLL_INTERVAL)).await,
                Found::Runs => task.pause(POLL_INTERVAL).await,
                Found::Error => task.pause(AFTER_FAILURE).await,
            };
            if !go_on {
                break;
            }
        }
        while drivers.join_next().await.is_some() {}
    }

    async fn reclaim(self, task: Task) {
        let database = &self.shared.context.database;
        let mut changed = database.wakeups(runs::CHANGED);
        while task.pause(RECLAIM_INTERVAL).await {
            if let Ok(false) = runs::any_work(database).await {
                task.heartbeat();
                task.wait(changed.wait(RECLAIM_INTERVAL)).await;
                continue;
            }
            match item::reclaim_expired(database).await {
                Ok(0) => {}
                Ok(items) => {
                    tracing::warn!(items, "lease of a pipeline worker expired, its items are released");
                }
                Err(error) => tracing::warn!(%error, "failed to release items with an expired lease"),
            }
            task.heartbeat();
        }
    }

    /// Writes the views of runs that no node executes again: other clients may have changed them, and the store may have
    /// lost them.
    async fn restore_views(self, task: Task) {
        let mut rendered: HashMap<(RunId, u64), View> = HashMap::new();
        let mut changed = self.shared.context.database.wakeups(runs::CHANGED);
        let mut go_on = task.pause(VIEW_INTERVAL).await;
        while go_on {
            let restored = self.restore_views_once(&mut rendered).await;
            task.heartbeat();
            go_on = match restored {
                Ok(0) => task.wait(changed.wait(VIEW_INTERVAL)).await,
                Ok(_) => task.pause(VIEW_INTERVAL).await,
                Err(error) => {
                    tracing::debug!(%error, "failed to publish the view of a pipeline run");
                    task.pause(VIEW_INTERVAL).await
                }
            };
        }
    }

    /// `rendered` has the views that do not change any more, by run and version. Returns the number of views.
    async fn restore_views_once(&self, rendered: &mut HashMap<(RunId, u64), View>) -> Result<usize> {
        let (shared, database) = (&self.shared, &self.shared.context.database);
        let now = UnixMs::now();
        let runs = runs::paused_or_ended_after(database, now.minus(shared.views.lifetime())).await?;
        rendered.retain(|(id, version), _| runs.iter().any(|run| run.id == *id && run.version == *version));
        for run in &runs {
            let Some(ttl) = shared.views.time_to_live(run) else { continue };
            let key = (run.id.clone(), run.version);
            if !rendered.contains_key(&key) {
                rendered.insert(key.clone(), shared.view(run).await?);
            }
            if let Some(view) = rendered.get(&key)
                && let ViewOutcome::Late { found } = shared.views.write(view, ttl).await?
                && run::find(database, &run.id).await?.version < found
            {
                // Another client wrote this version. The view is written again in the next round.
                shared.views.delete(&run.id).await?;
            }
            // Calls in flight may still end.
            if now.since(run.changed_at) < MAX_HOLD {
                rendered.remove(&key);
            }
        }
        Ok(runs.len())
    }

    async fn clean_up(self, task: Task) {
        loop {
            let config = self.shared.config.current();
            let calls = self.shared.quotas.delete_old_calls(config.keep_calls.get()).await;
            let database = &self.shared.context.database;
            let runs = run::delete_archived(database, config.keep_archived.get()).await;
            let paces = item::delete_old_throughput(database, THROUGHPUT_RETENTION).await;
            match (calls, runs, paces) {
                (Ok(calls), Ok(runs), Ok(_)) => tracing::debug!(calls, runs, "old pipeline data deleted"),
                (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => {
                    tracing::warn!(%error, "failed to delete old pipeline data");
                }
            }
            task.heartbeat();
            if !task.pause(CLEANUP_INTERVAL).await {
                return;
            }
        }
    }
}

impl Shared {
    async fn drive(self: Arc<Self>, id: RunId, stop: tokio_util::sync::CancellationToken) -> RunId {
        let driven = async {
            let run = run::find(&self.context.database, &id).await?;
            Driver::new(&self, &run, stop)?.drive().await
        };
        if let Err(error) = driven.await {
            if !error.is_reported() {
                tracing::warn!(run = %id, %error, "pipeline run interrupted, retrying");
            }
            let _ = runs::set_trouble(&self.context.database, &id, &error.to_string()).await;
        }
        id
    }

    pub(crate) fn notify_pages(&self) {
        if let Some(changes) = self.changes.get() {
            changes.notify("pipelines");
        }
    }

    /// Limits concurrent requests to a host.
    pub(crate) fn host_permits(&self, host: &str, max: u32) -> Arc<HostPermits> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= MAX_HOSTS {
            hosts.retain(|_, permits| Arc::strong_count(permits) > 1);
        }
        let permits = hosts.entry((host.to_owned(), max));
        Arc::clone(permits.or_insert_with(|| HostPermits::new(max)))
    }

    /// Writes the public view of a run to the store.
    pub(crate) async fn publish_view(&self, id: &RunId) -> Result<()> {
        let run = run::find(&self.context.database, id).await?;
        if let Some(ttl) = self.views.time_to_live(&run) {
            self.views.write(&self.view(&run).await?, ttl).await?;
        }
        Ok(())
    }

    async fn view(&self, run: &Run) -> Result<View> {
        let plan = Plan::parse(&run.text)?;
        let progress = item::progress(&self.context.database, &run.id).await?;
        // The view of a run that makes no calls does not change.
        let now = match run.state {
            RunState::Running => self.quotas.usage(&plan.quota).await?.now,
            _ => run.changed_at,
        };
        let calls = self.quotas.reserved_in_hour(&plan.quota, now).await?;
        let done = progress.of_step(plan.source.step(), ItemState::Done);
        self.views.render(run, &plan, now, calls, done).await
    }
}
