//! Caches plans in the store for five minutes (L10). Runs do not read the cache: a run reads the version that it was
//! queued with from the database.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_database::Database;
use hob_store::Key;
use hob_store::repair::{self, KeyType, STORED};
use hob_store::{Reply, Script, Store, cmd};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::database::plans;
use crate::keys::{self, Keys, RunType};
use crate::plan::catalog::PlanId;
use crate::plan::{Format, Mistake, Plan, PlanFiles, PlanSource, Step};

static FILL: Script = Script::with(&[STORED], include_str!("cache/fill.lua"));
static INVALIDATE: Script = Script::with(&[STORED], include_str!("cache/invalidate.lua"));

/// Larger values are not cached.
const MAX_BYTES: usize = 256 << 10;
const TTL: Duration = Keys::PLAN_TTL_MAX;
/// How long a plan counts as being loaded.
const LOADING_TTL: Duration = Keys::LOADING_TTL_MAX;
/// How long other nodes wait for the one that loads a plan.
const LOADING_TIMEOUT: Duration = Duration::from_millis(300);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The newest version of a plan, as it is cached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CachedPlan {
    pub plan_id: i64,
    pub version: u32,
    pub name: String,
    pub format: Format,
    pub source: String,
    #[serde(default, skip_serializing_if = "PlanFiles::is_empty")]
    pub files: PlanFiles,
    pub created_at: i64,
}

impl CachedPlan {
    #[must_use]
    pub fn to_source(&self) -> PlanSource {
        PlanSource { source: self.source.clone(), format: self.format, files: self.files.clone() }
    }

    pub fn read(&self) -> Result<Plan, Mistake> {
        self.to_source().read()
    }
}

/// A group of steps, as it is cached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CachedGroup {
    pub plan_version: u32,
    pub name: String,
    pub steps: Vec<String>,
}

/// Reads plans through the cache.
#[derive(Clone, Debug)]
pub struct Cache {
    store: Store,
    keys: Keys,
    database: Database,
    /// Lets one task of this node at a time load a plan.
    loading: Arc<Mutex<HashMap<PlanId, Arc<tokio::sync::Mutex<()>>>>>,
}

impl Cache {
    #[must_use]
    pub fn new(store: Store, keys: Keys, database: Database) -> Self {
        Self { store, keys, database, loading: Arc::default() }
    }

    /// The newest version of a plan. Without the store, it is read from the database.
    pub async fn plan(&self, id: PlanId) -> Result<Option<CachedPlan>, Error> {
        let Ok(key_id) = keys::PlanId::new(id.0) else { return Ok(None) };
        let key = self.keys.plan(&key_id);
        if let Some(plan) = self.get(&key).await {
            return Ok(Some(plan));
        }
        let lock = Arc::clone(self.loading.lock().entry(id).or_default());
        let _guard = lock.lock().await;
        let plan = match self.get(&key).await {
            Some(plan) => Ok(Some(plan)),
            None => self.load_once(id, &key_id, &key).await,
        };
        self.loading.lock().remove(&id);
        plan
    }

    /// Loads a plan. If another node is loading it, waits a moment for that node to fill the cache.
    async fn load_once(
        &self,
        id: PlanId,
        key_id: &keys::PlanId,
        key: &Key,
    ) -> Result<Option<CachedPlan>, Error> {
        let loading = self.keys.loading(key_id);
        let claim = cmd("SET").arg(&loading).arg("1").arg("NX").arg("PX").arg(millis(LOADING_TTL)).clone();
        // An error counts as a claim: the plan can be loaded without the store.
        let is_first = !matches!(self.store.run::<Option<String>>(claim).await, Ok(None));
        if !is_first {
            let begun = Instant::now();
            while begun.elapsed() < LOADING_TIMEOUT {
                tokio::time::sleep(POLL_INTERVAL).await;
                if let Some(plan) = self.get(key).await {
                    return Ok(Some(plan));
                }
            }
        }
        let plan = self.load(id, key_id, key).await;
        // Also after the wait: the key is of a node that died, or of another client, without an expiry.
        if let Err(error) = self.store.run::<()>(cmd("DEL").arg(&loading).clone()).await {
            tracing::debug!(%error, "failed to delete the loading key of a load plan");
        }
        plan
    }

    /// The groups of a plan for one run type.
    pub async fn groups(&self, id: PlanId, run_type: &str) -> Result<Vec<CachedGroup>, Error> {
        let (Ok(key_id), Ok(run_type_id)) = (keys::PlanId::new(id.0), RunType::new(run_type)) else {
            return Ok(vec![]);
        };
        let key = self.keys.groups(&key_id, &run_type_id);
        if let Some(groups) = self.get(&key).await {
            return Ok(groups);
        }
        let Some((cached, plan)) = self.read(id).await? else { return Ok(vec![]) };
        let Some(index) = plan.run_type(run_type) else { return Ok(vec![]) };
        let groups = groups(&plan, index, cached.version);
        self.fill(&key_id, &key, cached.version, &groups).await;
        Ok(groups)
    }

    /// The users of a plan for one run type.
    pub async fn users(&self, id: PlanId, run_type: &str) -> Result<Vec<HashMap<String, String>>, Error> {
        let (Ok(key_id), Ok(run_type_id)) = (keys::PlanId::new(id.0), RunType::new(run_type)) else {
            return Ok(vec![]);
        };
        let key = self.keys.users(&key_id, &run_type_id);
        if let Some(users) = self.get(&key).await {
            return Ok(users);
        }
        let Some((cached, plan)) = self.read(id).await? else { return Ok(vec![]) };
        let Some(index) = plan.run_type(run_type) else { return Ok(vec![]) };
        let users = users(&plan, index, cached.version);
        self.fill(&key_id, &key, cached.version, &users).await;
        Ok(users)
    }

    /// Deletes a plan from the cache and keeps versions below `version` out of it. `run_types` are those that the plan has
    /// or had.
    pub async fn invalidate(&self, id: PlanId, version: u32, run_types: &[String]) -> Result<(), Error> {
        let Ok(id) = keys::PlanId::new(id.0) else { return Ok(()) };
        let mut keys = vec![self.keys.plan_version(&id), self.keys.plan(&id)];
        for run_type in run_types.iter().filter_map(|name| RunType::new(name).ok()) {
            keys.extend([self.keys.groups(&id, &run_type), self.keys.users(&id, &run_type)]);
        }
        let call = INVALIDATE.on(&keys).arg(version).arg(millis(TTL));
        let keys: Vec<_> = keys.into_iter().map(|key| (key, KeyType::String)).collect();
        Ok(repair::run::<Reply, _>(&self.store, call, &keys).await.map(drop)?)
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
        let get = cmd("GET").arg(key).clone();
        let found: Option<Vec<u8>> = repair::run(&self.store, get, &[(key, KeyType::String)]).await.ok()?;
        serde_json::from_slice(&found?).ok()
    }

    async fn fill(&self, id: &keys::PlanId, key: &Key, version: u32, value: &impl Serialize) {
        let value = serde_json::to_string(value).unwrap_or_default();
        if value.len() > MAX_BYTES {
            return;
        }
        let keys = [&self.keys.plan_version(id), key];
        let call = FILL.on(&keys.map(AsRef::<[u8]>::as_ref)).arg(version).arg(value).arg(millis(TTL));
        let keys = keys.map(|key| (key, KeyType::String));
        if let Err(error) = repair::run::<Reply, _>(&self.store, call, &keys).await {
            tracing::debug!(%error, "failed to cache a load plan");
        }
    }
}

fn groups(plan: &Plan, run_type: usize, plan_version: u32) -> Vec<CachedGroup> {
    let steps = |group: &str| {
        let in_group = |step: &&Step| step.group.as_deref() == Some(group);
        plan.steps.iter().filter(in_group).map(|step| step.name.clone()).collect()
    };
    let group = |name: &str| CachedGroup { plan_version, name: name.to_owned(), steps: steps(name) };
    plan.groups(run_type).into_iter().map(group).collect()
}

fn users(plan: &Plan, run_type: usize, version: u32) -> Vec<HashMap<String, String>> {
    let run_type = &plan.run_types[run_type];
    let user = |row: &Vec<String>| {
        let names = run_type.columns.iter().map(|column| plan.variables.name(*column).to_owned());
        let mut user: HashMap<String, String> = names.zip(row.iter().cloned()).collect();
        user.insert("planVersion".into(), version.to_string());
        user
    };
    run_type.rows.iter().map(user).collect()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
