//! The service's handle: plans and runs, as its faces and its background tasks use them.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hob_database::{Migrations, Page, PageRequest, UnixMs};
use hob_service::{Live, Metric, ServiceContext, Task};
use hob_web::{Card, Changes, Routes, Service};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::config::Config;
use crate::database::seconds::{self, SecondReader};
use crate::database::{self, plans, runners, runs};
use crate::keys::{Keys, TestId};
use crate::plan::cache::{Cache, CachedPlan};
use crate::plan::catalog::{self, EditOutcome, PlanEntry, PlanId};
use crate::plan::{Plan, Written};
use crate::results::report::Report;
use crate::results::second::Second;
use crate::results::totals::Tally;
use crate::routes::SERVICE;
use crate::run::lifecycle::{self, Actor, InsertOutcome, NewRun, Transition};
use crate::run::logs::{Level, Line, Logs};
use crate::run::pending::{Pushed, Queue};
use crate::run::views::{Shown, Views};
use crate::run::{Event, Run, Runner, State, coordinator};
use crate::{Error, card, demo, metrics, pages, routes};

/// Load tests. Clones are handles to the same.
#[derive(Clone, Debug)]
pub struct Load {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) context: ServiceContext,
    pub(crate) config: Live<Config>,
    pub(crate) views: Views,
    pub(crate) logs: Logs,
    pub(crate) cache: Cache,
    queue: Queue,
    /// Rung when there may be work.
    pub(crate) bell: Notify,
    /// The runs that this node generates load for.
    pub(crate) busy: Mutex<HashSet<TestId>>,
    /// Pages that are open, once there are some.
    changes: OnceLock<Changes>,
}

/// A wish for a run.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// The plan's first kind, if not said.
    pub run_type: Option<String>,
    /// Higher goes first; 0 if not said.
    pub priority: i32,
    pub max_users: Option<u32>,
    /// On how many nodes; 1 if not said.
    pub runners: Option<u32>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    Run(TestId),
    NoPlan,
    /// The plan has no such kind of run.
    NoRunType,
}

pub(crate) const MAX_RUNNERS: u32 = 64;
const LOOK_EVERY: Duration = Duration::from_millis(500);
const SHOW_EVERY: Duration = Duration::from_secs(1);
/// Rounds of the above between two of the slower chores.
const SWEEP_EVERY: u32 = 5;

impl Service for Load {
    type Config = Config;
    type Error = Error;

    const TITLE: &'static str = "Load tests";
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
                views: Views::new(store.clone(), keys.clone()),
                logs: Logs::new(store.clone(), keys.clone()),
                queue: Queue::new(store.clone(), keys.clone()),
                cache: Cache::new(store, keys, database),
                context: context.clone(),
                config,
                bell: Notify::new(),
                busy: Mutex::default(),
                changes: OnceLock::new(),
            }),
        })
    }

    /// Starts to work on runs, and to keep their views.
    fn start(&self, changes: &Changes) {
        let _ = self.inner.changes.set(changes.clone());
        let tests = self.clone();
        self.inner.context.tasks.spawn("load runs", move |task| coordinator::work(tests.clone(), task));
        let tests = self.clone();
        self.inner.context.tasks.spawn("load views", move |task| tests.clone().keep_views(task));
    }

    fn routes(&self) -> Routes {
        routes::routes().merge(pages::routes()).with_state(self.clone())
    }

    async fn card(&self) -> Card {
        card::card(self).await
    }

    async fn demo(&self) -> Result<(), Error> {
        demo::start(self);
        Ok(())
    }
}

impl Load {
    /// Says that there is something new to see.
    pub(crate) fn changed(&self) {
        if let Some(changes) = self.inner.changes.get() {
            changes.tell(SERVICE);
        }
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        self.inner.config.now()
    }

    pub async fn add_plan(&self, plan: &Written) -> Result<PlanId, Error> {
        catalog::add(&self.inner.context.database, plan).await
    }

    /// Makes a new version of a plan; of the one that the caller has seen, if it says which.
    pub async fn edit_plan(
        &self,
        id: PlanId,
        seen: Option<u32>,
        plan: &Written,
    ) -> Result<EditOutcome, Error> {
        let mut kinds = self.kinds(id).await?;
        let edited = catalog::edit(&self.inner.context.database, id, seen, plan).await?;
        if let EditOutcome::Saved(version) = edited {
            kinds.extend(plan.read()?.run_types.into_iter().map(|kind| kind.name));
            self.forget(id, version, &kinds).await;
        }
        Ok(edited)
    }

    pub async fn delete_plan(&self, id: PlanId) -> Result<bool, Error> {
        let kinds = self.kinds(id).await?;
        let version = self.plan(id).await?.map_or(0, |plan| plan.version);
        let deleted = plans::mark_deleted(&self.inner.context.database, id).await?;
        // Nothing of it may be kept at hand again.
        self.forget(id, version + 1, &kinds).await;
        Ok(deleted)
    }

    /// The newest version of a plan.
    pub async fn plan(&self, id: PlanId) -> Result<Option<CachedPlan>, Error> {
        self.inner.cache.plan(id).await
    }

    pub async fn plans(&self, request: &PageRequest) -> Result<Page<PlanEntry>, Error> {
        Ok(plans::page(&self.inner.context.database, request).await?)
    }

    /// A plan as lists show it.
    pub async fn plan_entry(&self, id: PlanId) -> Result<Option<PlanEntry>, Error> {
        Ok(plans::find(&self.inner.context.database, id).await?)
    }

    /// The versions of a plan and when they were made, newest first.
    pub async fn plan_versions(&self, id: PlanId) -> Result<Vec<(u32, UnixMs)>, Error> {
        Ok(plans::versions(&self.inner.context.database, id).await?)
    }

    /// A version of a plan as it was written.
    pub async fn plan_version(&self, id: PlanId, version: u32) -> Result<Option<Written>, Error> {
        Ok(plans::version(&self.inner.context.database, id, version).await?.map(|(plan, _)| plan))
    }

    /// Queues a run of a plan's newest version.
    pub async fn queue_run(&self, id: PlanId, wish: &Wish) -> Result<Accepted, Error> {
        let Some(cached) = self.plan(id).await? else { return Ok(Accepted::NoPlan) };
        let plan = cached.read()?;
        let kind = match &wish.run_type {
            None => 0,
            Some(name) => match plan.run_type(name) {
                Some(kind) => kind,
                None => return Ok(Accepted::NoRunType),
            },
        };
        self.config().targets().check(&plan, kind)?;
        let run = NewRun {
            id: new_id(&plan.name, id),
            plan_id: id,
            run_type: plan.run_types[kind].name.clone(),
            priority: wish.priority,
            max_users: wish.max_users,
            runners: wish.runners.unwrap_or(1).clamp(1, MAX_RUNNERS),
        };
        match lifecycle::enqueue(&self.inner.context.database, &run, self.config().ageing.get()).await? {
            InsertOutcome::PlanNotFound => return Ok(Accepted::NoPlan),
            InsertOutcome::Inserted | InsertOutcome::Exists => {}
        }
        self.show(&run.id, Shown::default()).await;
        self.inner.bell.notify_one();
        Ok(Accepted::Run(run.id))
    }

    pub async fn run(&self, id: &TestId) -> Result<Option<Run>, Error> {
        Ok(runs::find(&self.inner.context.database, id).await?)
    }

    pub async fn runs(&self, plan: Option<PlanId>, request: &PageRequest) -> Result<Page<Run>, Error> {
        Ok(runs::page(&self.inner.context.database, plan, request).await?)
    }

    pub async fn waiting(&self) -> Result<Vec<Run>, Error> {
        Ok(runs::pending(&self.inner.context.database).await?)
    }

    pub async fn runners(&self, run: &Run) -> Result<Vec<Runner>, Error> {
        Ok(runners::list(&self.inner.context.database, &run.id, run.epoch).await?)
    }

    pub async fn pause(&self, id: &TestId) -> Result<Transition, Error> {
        self.change(id, Event::Pause, None, "Paused").await
    }

    pub async fn resume(&self, id: &TestId) -> Result<Transition, Error> {
        self.change(id, Event::Resume, None, "Running").await
    }

    pub async fn cancel(&self, id: &TestId) -> Result<Transition, Error> {
        self.change(id, Event::Cancel, Some(State::Cancelled), "Cancelled").await
    }

    /// The report of a run: the final one, or of what was measured so far.
    pub async fn report(&self, run: &Run) -> Result<Option<Report>, Error> {
        if let Some(report) = runs::report(&self.inner.context.database, &run.id).await? {
            return Ok(Some(serde_json::from_str(&report)?));
        }
        let Some((plan, kind)) = self.pinned(run).await? else { return Ok(None) };
        let mut tally = Tally::new(&plan);
        for second in self.seconds(run, 0, usize::MAX).await? {
            tally.add(&second);
        }
        Ok(Some(Report::new(&plan, kind, run.start_at.unwrap_or(run.queued_at).0, &tally)))
    }

    /// What was measured of a run, second by second, merged over its runners: `most` seconds from one on.
    pub async fn seconds(&self, run: &Run, from: u32, most: usize) -> Result<Vec<Second>, Error> {
        let database = &self.inner.context.database;
        let mut reader = SecondReader::new(run, from);
        let mut seconds = Vec::new();
        while seconds.len() < most
            && let Some(merged) = reader.next(database).await?
        {
            seconds.push(merged.second);
        }
        Ok(seconds)
    }

    /// How many requests ended in each of the newest seconds of a run.
    pub(crate) async fn newest_requests(&self, run: &Run, seconds: u32) -> Result<Vec<u64>, Error> {
        let newest = seconds::newest(&self.inner.context.database, run).await?;
        let from = newest.map_or(0, |newest| (newest + 1).saturating_sub(seconds));
        let seconds = self.seconds(run, from, seconds as usize).await?;
        Ok(seconds.iter().map(Second::requests).collect())
    }

    /// The plan that a run was queued with, and its kind of run.
    pub async fn pinned(&self, run: &Run) -> Result<Option<(Plan, usize)>, Error> {
        let Some(plan) = self.plan_version(run.plan_id, run.plan_version).await? else { return Ok(None) };
        let plan = plan.read()?;
        let kind = plan.run_type(&run.run_type).unwrap_or(0);
        let most = run.max_users.unwrap_or(u32::MAX).min(self.config().most_users);
        Ok(Some((plan.capped(most, kind), kind)))
    }

    #[must_use]
    pub fn views(&self) -> &Views {
        &self.inner.views
    }

    #[must_use]
    pub fn logs(&self) -> &Logs {
        &self.inner.logs
    }

    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.inner.cache
    }

    async fn change(
        &self,
        id: &TestId,
        event: Event,
        ending: Option<State>,
        message: &str,
    ) -> Result<Transition, Error> {
        let changed =
            lifecycle::change(&self.inner.context.database, id, Actor::User, event, ending, message).await?;
        if let Transition::Applied(_) = changed {
            self.show(id, Shown::default()).await;
            self.inner.bell.notify_one();
        }
        Ok(changed)
    }

    /// Shows how a run stands after it changed, and tells those who listen.
    pub(crate) async fn show(&self, id: &TestId, shown: Shown) {
        let shown = async {
            let Some(run) = self.run(id).await? else { return Ok(()) };
            let shown = match self.inner.views.current(id).await? {
                Some(current) if shown.target_users == 0 => {
                    Shown { users: current.active_users, progress: current.progress, ..shown }
                }
                _ => shown,
            };
            if run.state.is_final() {
                self.inner.views.finish(&run, shown).await?;
            } else {
                self.inner.views.status(&run, shown).await?;
            }
            self.inner.views.notify(&run).await?;
            let at = database::now(&self.inner.context.database).await?.0;
            let level =
                if matches!(run.state, State::Failed | State::Lost) { Level::Error } else { Level::Info };
            let line = Line::new(at, level, format!("{}: {}", run.state, run.message));
            self.inner.logs.write(id, &[line]).await
        };
        let shown = shown.await;
        self.changed();
        if let Err(error) = shown {
            // Only a view: it is shown again before long.
            tracing::warn!(run = %id, %error, "a run's status could not be shown");
        }
    }

    async fn kinds(&self, id: PlanId) -> Result<Vec<String>, Error> {
        let Some(cached) = self.plan(id).await? else { return Ok(vec![]) };
        Ok(cached.read()?.run_types.into_iter().map(|kind| kind.name).collect())
    }

    async fn forget(&self, id: PlanId, version: u32, kinds: &[String]) {
        if let Err(error) = self.inner.cache.drop_plan(id, version, kinds).await {
            tracing::warn!(plan = %id, %error, "an edited plan may be shown as it was for some minutes");
        }
    }

    async fn keep_views(self, task: Task) {
        let mut round = 0_u32;
        while task.pause(SHOW_EVERY).await {
            if let Err(error) = self.keep_views_once(round).await {
                tracing::warn!(%error, "the views of load tests are not kept");
            }
            round = round.wrapping_add(1);
            task.beat();
        }
    }

    /// One round of the chores: the list of waiting tests every time, the others now and then.
    pub async fn keep_views_once(&self, round: u32) -> Result<(), Error> {
        let waiting = self.take_in().await?;
        if round.is_multiple_of(SWEEP_EVERY) {
            let held = runs::active(&self.inner.context.database).await?;
            metrics::runs(waiting.len(), &held);
            self.inner.views.sweep_active(&held).await?;
            for run in &waiting {
                self.inner.views.status(run, Shown::default()).await?;
            }
        }
        if round.is_multiple_of(SWEEP_EVERY * 720) {
            lifecycle::delete_old_seconds(&self.inner.context.database, self.config().keep.get()).await?;
        }
        Ok(())
    }

    /// Takes in what outsiders pushed onto the public list, and makes it what the database says (L7).
    async fn take_in(&self) -> Result<Vec<Run>, Error> {
        let listed = self.inner.queue.read().await?;
        let mut waiting = self.waiting().await?;
        let pushed = listed.pushed(&waiting);
        let is_new = !pushed.is_empty();
        for pushed in pushed {
            match pushed {
                Pushed::Run(run) => self.take_in_one(run).await?,
                Pushed::Rubbish(text) => {
                    let text: String = text.chars().take(200).collect();
                    tracing::warn!(entry = text, "an entry of the queue cannot be read, and was dropped");
                }
            }
        }
        if is_new {
            waiting = self.waiting().await?;
        }
        self.inner.queue.sync(&listed, &waiting).await?;
        Ok(waiting)
    }

    async fn take_in_one(&self, mut run: NewRun) -> Result<(), Error> {
        let id = run.id.clone();
        let Some(cached) = self.plan(run.plan_id).await? else {
            tracing::warn!(run = %id, plan = %run.plan_id, "an entry of the queue names no plan, and was dropped");
            return Ok(());
        };
        let plan = cached.read()?;
        if let Err(refused) = self.config().targets().check(&plan, 0) {
            tracing::warn!(run = %id, %refused, "an entry of the queue was dropped");
            return Ok(());
        }
        run.run_type = plan.run_types[0].name.clone();
        match lifecycle::enqueue(&self.inner.context.database, &run, self.config().ageing.get()).await? {
            InsertOutcome::Inserted => {
                self.show(&id, Shown::default()).await;
                self.inner.bell.notify_one();
            }
            // Claimed since it was pushed, or a view that was written by another node: nothing to do.
            InsertOutcome::Exists | InsertOutcome::PlanNotFound => {
                tracing::debug!(run = %id, "an entry of the queue is known")
            }
        }
        Ok(())
    }

    pub(crate) fn look_every() -> Duration {
        LOOK_EVERY
    }
}

/// `checkout_1_20250828183842_3f9a`: as the document's, with what keeps two runs of a second apart.
fn new_id(name: &str, plan: PlanId) -> TestId {
    let plain = |sign: char| if sign.is_ascii_alphanumeric() { sign } else { '-' };
    let name: String = name.chars().take(40).map(plain).collect();
    let time = jiff::Timestamp::now().strftime("%Y%m%d%H%M%S");
    let id = format!("{name}_{plan}_{time}_{:04x}", rand::random::<u16>());
    TestId::new(id).expect("letters, digits and signs that every id may have")
}
