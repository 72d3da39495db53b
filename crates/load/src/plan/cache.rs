//! Plans at hand: what is read often is kept in the store for five minutes (L10). A run never reads it: it pins the
//! version that it was queued with, in the database.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_database::Database;
use hob_schema::Key;
use hob_store::{Reply, Script, Store, cmd};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::database::plans;
use crate::keys::{self, Keys, RunType};
use crate::plan::catalog::PlanId;
use crate::plan::{Files, Format, Mistake, Plan, Written};

static FILL: Script = Script::new(include_str!("cache/fill.lua"));
static DROP: Script = Script::new(include_str!("cache/drop.lua"));

/// Larger values are not worth it.
const MOST_BYTES: usize = 256 << 10;
const TTL: Duration = Keys::PLAN_TTL_MAX;
/// Whoever loads a plan is believed to be at it for so long.
const LOADING: Duration = Keys::LOADING_TTL_MAX;
/// For so long others wait for it.
const PATIENCE: Duration = Duration::from_millis(300);
const LOOK: Duration = Duration::from_millis(20);

/// A plan with its text, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CachedPlan {
    pub plan_id: i64,
    pub version: u32,
    pub name: String,
    pub format: Format,
    pub source: String,
    #[serde(default, skip_serializing_if = "Files::is_empty")]
    pub files: Files,
    pub created_at: i64,
}

impl CachedPlan {
    /// The plan as it was written.
    #[must_use]
    pub fn written(&self) -> Written {
        Written { source: self.source.clone(), format: self.format, files: self.files.clone() }
    }

    pub fn read(&self) -> Result<Plan, Mistake> {
        self.written().read()
    }
}

/// A group of steps, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LoadPlanGroup)]
pub struct CachedGroup {
    pub plan_version: u32,
    pub name: String,
    pub steps: Vec<String>,
}

/// Reads plans through the store.
#[derive(Clone, Debug)]
pub struct Cache {
    store: Store,
    keys: Keys,
    database: Database,
    /// One loader at a time for each plan on this node, as between nodes; the others wait for what it loads.
    loading: Arc<Mutex<HashMap<PlanId, Arc<tokio::sync::Mutex<()>>>>>,
}

impl Cache {
    #[must_use]
    pub fn new(store: Store, keys: Keys, database: Database) -> Self {
        Self { store, keys, database, loading: Arc::default() }
    }

    /// The newest version of a plan. The store that is away costs time, nothing else.
    pub async fn plan(&self, id: PlanId) -> Result<Option<CachedPlan>, Error> {
        let Ok(key_id) = keys::PlanId::new(id.0) else { return Ok(None) };
        let key = self.keys.plan(&key_id);
        if let Some(plan) = self.get(&key).await {
            return Ok(Some(plan));
        }
        let turn = Arc::clone(self.loading.lock().entry(id).or_default());
        let _turn = turn.lock().await;
        let plan = match self.get(&key).await {
            Some(plan) => Ok(Some(plan)),
            None => self.load_in_turn(id, &key_id, &key).await,
        };
        self.loading.lock().remove(&id);
        plan
    }

    /// Loads a plan, unless another node is about to: then it waits for what that one loads, a moment at most.
    async fn load_in_turn(
        &self,
        id: PlanId,
        key_id: &keys::PlanId,
        key: &Key,
    ) -> Result<Option<CachedPlan>, Error> {
        let loading = self.keys.loading(key_id);
        let ask = cmd("SET").arg(&loading).arg("1").arg("NX").arg("PX").arg(millis(LOADING)).clone();
        // The store that is away keeps nobody from loading.
        let is_first = !matches!(self.store.run::<Option<String>>(ask).await, Ok(None));
        if !is_first {
            let asked = Instant::now();
            while asked.elapsed() < PATIENCE {
                tokio::time::sleep(LOOK).await;
                if let Some(plan) = self.get(key).await {
                    return Ok(Some(plan));
                }
            }
        }
        let plan = self.load(id, key_id, key).await;
        if is_first && let Err(error) = self.store.run::<()>(cmd("DEL").arg(&loading).clone()).await {
            tracing::debug!(%error, "a loader is remembered until its time is up");
        }
        plan
    }

    /// The groups of a plan for one kind of run.
    pub async fn groups(&self, id: PlanId, run_type: &str) -> Result<Vec<CachedGroup>, Error> {
        let (Ok(key_id), Ok(kind)) = (keys::PlanId::new(id.0), RunType::new(run_type)) else {
            return Ok(vec![]);
        };
        let key = self.keys.groups(&key_id, &kind);
        if let Some(groups) = self.get(&key).await {
            return Ok(groups);
        }
        let Some((cached, plan)) = self.read(id).await? else { return Ok(vec![]) };
        let Some(index) = plan.run_type(run_type) else { return Ok(vec![]) };
        let groups = groups(&plan, index, cached.version);
        self.fill(&key_id, &key, cached.version, &groups).await;
        Ok(groups)
    }

    /// The users that a plan logs in with, for one kind of run.
    pub async fn users(&self, id: PlanId, run_type: &str) -> Result<Vec<HashMap<String, String>>, Error> {
        let (Ok(key_id), Ok(kind)) = (keys::PlanId::new(id.0), RunType::new(run_type)) else {
            return Ok(vec![]);
        };
        let key = self.keys.users(&key_id, &kind);
        if let Some(users) = self.get(&key).await {
            return Ok(users);
        }
        let Some((cached, plan)) = self.read(id).await? else { return Ok(vec![]) };
        let Some(index) = plan.run_type(run_type) else { return Ok(vec![]) };
        let users = users(&plan, index, cached.version);
        self.fill(&key_id, &key, cached.version, &users).await;
        Ok(users)
    }

    /// Forgets a plan that was edited or deleted. `kinds` are the kinds of runs that it has or had.
    pub async fn drop_plan(&self, id: PlanId, version: u32, kinds: &[String]) -> Result<(), Error> {
        let Ok(id) = keys::PlanId::new(id.0) else { return Ok(()) };
        let mut keys = vec![self.keys.plan_version(&id), self.keys.plan(&id)];
        for kind in kinds.iter().filter_map(|kind| RunType::new(kind).ok()) {
            keys.extend([self.keys.groups(&id, &kind), self.keys.users(&id, &kind)]);
        }
        let call = DROP.on(&keys).arg(version).arg(millis(TTL));
        Ok(self.store.run::<Reply>(call).await.map(drop)?)
    }

    async fn read(&self, id: PlanId) -> Result<Option<(CachedPlan, Plan)>, Error> {
        let Some(cached) = self.plan(id).await? else { return Ok(None) };
        let plan = cached.read()?;
        Ok(Some((cached, plan)))
    }

    async fn load(&self, id: PlanId, key_id: &keys::PlanId, key: &Key) -> Result<Option<CachedPlan>, Error> {
        let Some(entry) = plans::find(&self.database, id).await? else { return Ok(None) };
        let Some((plan, created_at)) = plans::version(&self.database, id, entry.version).await? else {
            return Ok(None);
        };
        let plan = CachedPlan {
            plan_id: id.0,
            version: entry.version,
            name: entry.name,
            format: plan.format,
            source: plan.source,
            files: plan.files,
            created_at: created_at.0,
        };
        self.fill(key_id, key, plan.version, &plan).await;
        Ok(Some(plan))
    }

    async fn get<T: for<'de> Deserialize<'de>>(&self, key: &Key) -> Option<T> {
        let found: Option<String> = self.store.run(cmd("GET").arg(key).clone()).await.ok()?;
        serde_json::from_str(&found?).ok()
    }

    async fn fill(&self, id: &keys::PlanId, key: &Key, version: u32, value: &impl Serialize) {
        let value = serde_json::to_string(value).unwrap_or_default();
        if value.len() > MOST_BYTES {
            return;
        }
        let keys = [&self.keys.plan_version(id), key];
        let call = FILL.on(&keys.map(AsRef::<[u8]>::as_ref)).arg(version).arg(value).arg(millis(TTL));
        if let Err(error) = self.store.run::<Reply>(call).await {
            tracing::debug!(%error, "a plan could not be kept at hand");
        }
    }
}

fn groups(plan: &Plan, run_type: usize, plan_version: u32) -> Vec<CachedGroup> {
    let steps = |group: &str| {
        let in_group = |step: &&crate::plan::Step| step.group.as_deref() == Some(group);
        plan.steps.iter().filter(in_group).map(|step| step.name.clone()).collect()
    };
    let group = |name: &str| CachedGroup { plan_version, name: name.to_owned(), steps: steps(name) };
    plan.groups(run_type).into_iter().map(group).collect()
}

fn users(plan: &Plan, run_type: usize, version: u32) -> Vec<HashMap<String, String>> {
    let run_type = &plan.run_types[run_type];
    let user = |row: &Vec<String>| {
        let names = run_type.columns.iter().map(|column| plan.names.name(*column).to_owned());
        let mut user: HashMap<String, String> = names.zip(row.iter().cloned()).collect();
        user.insert("planVersion".into(), version.to_string());
        user
    };
    run_type.rows.iter().map(user).collect()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
