//! Public views of runs in the store (P3–P5, P7), for other clients. Hob does not read them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use hob_database::{Database, UnixMs};
use hob_store::repair::{self, KeyType};
use hob_store::{CLOCK, Reply, Script, Store, cmd};

use crate::database::results;
use crate::error::Result;
use crate::keys::{DocketId, Keys, TaskId};
use crate::quota::{HOUR_MS, QuotaName, hour_key, millis};
use crate::run::item::Item;
use crate::run::{Run, RunId};

static VIEW: Script = Script::new(include_str!("view.lua"));
static FAILED: Script = Script::with(&[CLOCK], include_str!("failed.lua"));

/// Maximum number of items in `dockets_processed`.
const MAX_LISTED: u32 = 100;

/// Under the tagged layout, the shard of the failure lists.
const FAILED_SHARD: &str = "failed";

/// Writes the public views.
#[derive(Clone, Debug)]
pub(crate) struct Views {
    store: Store,
    keys: Keys,
    database: Database,
    /// The last known hour of the store's clock.
    hour: Arc<AtomicI64>,
}

impl Views {
    pub(crate) fn new(store: &Store, keys: &Keys, database: &Database) -> Self {
        let hour = Arc::new(AtomicI64::new(jiff::Timestamp::now().as_millisecond() / HOUR_MS));
        Self { store: store.clone(), keys: keys.clone(), database: database.clone(), hour }
    }

    /// Writes the state of a run (P3). `now` is the store's time; `calls` is the number of calls of its quota in that hour.
    pub(crate) async fn publish_run(
        &self,
        run: &Run,
        quota: &QuotaName,
        now: UnixMs,
        calls: u64,
        done: u64,
    ) -> Result<()> {
        let newest = results::newest_done(&self.database, &run.id, MAX_LISTED).await?;
        // The field is bounded, and keys may be long.
        let newest: Vec<&str> = newest.iter().map(String::as_str).filter(|key| key.len() <= 64).collect();
        let hour = hour_key(now.0 / HOUR_MS)?;
        let state = self.keys.state(run.id.id());
        let shard = |of: &str| self.keys.space().shard_of(of);
        let redis_keys = serde_json::json!({
            "state_key": state.to_string(),
            "counter_key": self.keys.counter(&hour, shard(quota.as_str())).to_string(),
            "failed_key": self.keys.failed(&hour, shard(FAILED_SHARD)).to_string(),
        });
        let start = jiff::Timestamp::from_millisecond(run.started_at.0).unwrap_or_default();
        let call = VIEW.on(&[&state]).arg(run.version).arg(millis(self.keys.state_ttl()));
        let call = call.arg("dag_run_id").arg(run.id.as_str());
        let call = call.arg("start_time").arg(start.to_string());
        let call = call.arg("current_hour").arg(hour.as_str());
        let call = call.arg("api_calls_this_hour").arg(calls);
        let call = call.arg("status").arg(run.state.as_str());
        let call = call.arg("dockets_processed").arg(serde_json::json!(newest).to_string());
        let call = call.arg("redis_keys").arg(redis_keys.to_string());
        let call = call.arg("items_done").arg(done);
        let _: Reply = repair::run(&self.store, call, &[(&state, KeyType::Hash)]).await?;
        Ok(())
    }

    /// Writes when the current attempt at an item started (P4).
    pub(crate) async fn publish_task_start(&self, run: &RunId, item: &Item) -> Result<()> {
        let Ok(task) = task(item) else { return Ok(()) };
        let key = self.keys.task_start(run.id(), &task);
        let mut set = cmd("SET");
        // In milliseconds, to save memory: there is one key per call in flight.
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
        set.arg(key.as_bytes()).arg(now);
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

fn task(item: &Item) -> Result<TaskId, hob_schema::IdError> {
    TaskId::new(format!("{}_{}", item.step, item.key))
}
