//! Public views of runs in the store (P3–P5, P7), for other clients. Hob does not read them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hob_database::{Database, UnixMs};
use hob_store::repair::{self, KeyType, STORED};
use hob_store::{CLOCK, Reply, Script, Store, cmd};

use crate::database::results;
use crate::error::Result;
use crate::keys::{DocketId, Keys, TaskId};
use crate::plan::Plan;
use crate::quota::{HOUR_MS, hour_key, millis};
use crate::run::item::Item;
use crate::run::{Run, RunId, RunState};

static VIEW: Script = Script::with(&[STORED], include_str!("view.lua"));
static FAILED: Script = Script::with(&[CLOCK], include_str!("failed.lua"));

/// Maximum number of items in `dockets_processed`.
const MAX_LISTED: u32 = 100;

/// Runs whose newest items are kept in memory.
const MAX_CACHED: usize = 1000;

/// Under the tagged layout, the shard of the failure lists.
const FAILED_SHARD: &str = "failed";

/// The public state of a run (P3).
#[derive(Clone, Debug)]
pub(crate) struct View {
    run: RunId,
    version: u64,
    fields: Vec<(&'static str, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewOutcome {
    Written,
    /// The store has a later version.
    Late {
        found: u64,
    },
}

/// Writes the public views.
#[derive(Clone, Debug)]
pub(crate) struct Views {
    store: Store,
    keys: Keys,
    database: Database,
    /// The last known hour of the store's clock.
    hour: Arc<AtomicI64>,
    newest: Arc<Mutex<NewestDone>>,
}

/// The newest items of runs, and how many items were done then.
type NewestDone = HashMap<RunId, (u64, Arc<[String]>)>;

impl Views {
    pub(crate) fn new(store: &Store, keys: &Keys, database: &Database) -> Self {
        let hour = Arc::new(AtomicI64::new(jiff::Timestamp::now().as_millisecond() / HOUR_MS));
        Self {
            store: store.clone(),
            keys: keys.clone(),
            database: database.clone(),
            hour,
            newest: Arc::default(),
        }
    }

    /// Renders the state of a run (P3). `now` is the store's time; `calls` is the number of calls of the quota in that
    /// hour; `done` is the number of items of the source that are done.
    pub(crate) async fn render(
        &self,
        run: &Run,
        plan: &Plan,
        now: UnixMs,
        calls: u64,
        done: u64,
    ) -> Result<View> {
        let newest = self.newest_done(&run.id, plan.source.step(), done).await?;
        // The field is bounded, and keys may be long.
        let newest: Vec<&str> = newest.iter().map(String::as_str).filter(|key| key.len() <= 64).collect();
        let hour = hour_key(now.0 / HOUR_MS)?;
        let shard = |of: &str| self.keys.space().shard_of(of);
        let redis_keys = serde_json::json!({
            "state_key": self.keys.state(run.id.id()).to_string(),
            "counter_key": self.keys.counter(&hour, shard(plan.quota.as_str())).to_string(),
            "failed_key": self.keys.failed(&hour, shard(FAILED_SHARD)).to_string(),
        });
        let start = jiff::Timestamp::from_millisecond(run.started_at.0).unwrap_or_default();
        let fields = vec![
            ("dag_run_id", run.id.to_string()),
            ("start_time", iso_time(start)),
            ("current_hour", hour.to_string()),
            ("api_calls_this_hour", calls.to_string()),
            ("status", run.state.to_string()),
            ("dockets_processed", serde_json::json!(newest).to_string()),
            ("redis_keys", redis_keys.to_string()),
            ("items_done", done.to_string()),
        ];
        Ok(View { run: run.id.clone(), version: run.version, fields })
    }

    /// The newest items of a step. They are read again only if another one is done, since many items of other steps may
    /// be newer.
    async fn newest_done(&self, run: &RunId, step: &str, done: u64) -> Result<Arc<[String]>> {
        let known = self.lock_newest().get(run).filter(|(count, _)| *count == done).cloned();
        if let Some((_, newest)) = known {
            return Ok(newest);
        }
        let newest: Arc<[String]> = results::newest_done(&self.database, run, step, MAX_LISTED).await?.into();
        let mut all = self.lock_newest();
        if all.len() >= MAX_CACHED {
            all.clear();
        }
        all.insert(run.clone(), (done, Arc::clone(&newest)));
        Ok(newest)
    }

    fn lock_newest(&self) -> MutexGuard<'_, NewestDone> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a view that expires after `ttl`.
    pub(crate) async fn write(&self, view: &View, ttl: Duration) -> Result<ViewOutcome> {
        let state = self.keys.state(view.run.id());
        let call = VIEW.on(&[&state]).arg(view.version).arg(millis(ttl));
        let call = view.fields.iter().fold(call, |call, (name, value)| call.arg(*name).arg(value));
        let mut reply: Reply = repair::run(&self.store, call, &[(&state, KeyType::Hash)]).await?;
        Ok(match reply.word() {
            "late" => ViewOutcome::Late { found: reply.next()? },
            _ => ViewOutcome::Written,
        })
    }

    /// Deletes the view of a run.
    pub(crate) async fn delete(&self, run: &RunId) -> Result<()> {
        let state = self.keys.state(run.id());
        self.store.run(cmd("DEL").arg(state.as_bytes())).await.map_err(Into::into)
    }

    /// How long a view lives after the end of its run.
    pub(crate) fn lifetime(&self) -> Duration {
        self.keys.state_ttl()
    }

    /// How long a view lives: from now while the run is not over, else from its end. `None` if that time is over.
    pub(crate) fn time_to_live(&self, run: &Run) -> Option<Duration> {
        let whole = self.keys.state_ttl();
        if matches!(run.state, RunState::Running | RunState::Paused) {
            return Some(whole);
        }
        Some(whole.saturating_sub(UnixMs::now().since(run.changed_at))).filter(|left| !left.is_zero())
    }

    /// Writes when the current attempt at an item started (P4).
    pub(crate) async fn publish_task_start(&self, run: &RunId, item: &Item) -> Result<()> {
        let Ok(task) = task(item) else { return Ok(()) };
        let key = self.keys.task_start(run.id(), &task);
        let mut set = cmd("SET");
        set.arg(key.as_bytes()).arg(iso_time(jiff::Timestamp::now()));
        set.arg("PX").arg(millis(self.keys.task_start_ttl()));
        self.store.run(set).await.map_err(Into::into)
    }

    /// Deletes the start time when the attempt ends.
    pub(crate) async fn delete_task_start(&self, run: &RunId, item: &Item) -> Result<()> {
        let Ok(task) = task(item) else { return Ok(()) };
        let key = self.keys.task_start(run.id(), &task);
        self.store.run(cmd("DEL").arg(key.as_bytes())).await.map_err(Into::into)
    }

    /// Adds items to the list of failures (P5).
    pub(crate) async fn publish_failed(&self, keys: impl IntoIterator<Item = &str>) -> Result<()> {
        let ids: Vec<DocketId> = keys.into_iter().filter_map(|key| DocketId::new(key).ok()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let shard = self.keys.space().shard_of(FAILED_SHARD);
        for _ in 0..2 {
            let hour = self.hour.load(Ordering::Relaxed);
            let hours = [hour_key(hour - 1)?, hour_key(hour)?, hour_key(hour + 1)?];
            let lists = hours.map(|hour| self.keys.failed(&hour, shard));
            let ttl_ms = millis(self.keys.failed_ttl());
            let call = FAILED
                .on(&lists)
                .arg(self.store.clock().us())
                .arg(hour)
                .arg(ttl_ms)
                .arg(Keys::FAILED_MAX_LEN);
            let call = ids.iter().fold(call, |call, id| call.arg(id.as_str()));
            let kinds = lists.map(|list| (list, KeyType::List));
            let mut reply: Reply = repair::run(&self.store, call, &kinds).await?;
            match reply.word() {
                "hour" => self.hour.store(reply.next()?, Ordering::Relaxed),
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}

/// UTC without an offset, as documented (P3, P4).
fn iso_time(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6f").to_string()
}

fn task(item: &Item) -> Result<TaskId, hob_schema::IdError> {
    TaskId::new(format!("{}_{}", item.step, item.key))
}
