//! The documented keys of a run, which other clients read. They are views of the database and of the runners'
//! measurements, so their loss does no harm.

use std::time::Duration;

use hob_database::UnixMs;
use hob_load_generator::{TimelinePoint, per_cent};
use hob_store::Key;
use hob_store::repair::{self, KeyType, STORED};
use hob_store::{Call, FromRedisValue, Reply, Script, Store, cmd};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::keys::{Keys, MetricType, SessionId, TestId};
use crate::run::{PublicStatus, Run, RunState};

static PUBLISH: Script = Script::with(&[STORED], include_str!("views/publish.lua"));
static STATUS: Script = Script::with(&[STORED], include_str!("views/status.lua"));
static FINISH: Script = Script::with(&[STORED], include_str!("views/finish.lua"));
static BUFFER: Script = Script::new(include_str!("views/buffer.lua"));
static ADD_SESSION: Script = Script::new(include_str!("views/add_session.lua"));

/// `metrics:current` (L1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CurrentMetrics {
    pub test_id: String,
    pub timestamp: i64,
    pub active_users: u64,
    pub tps: f64,
    pub avg_response_time: f64,
    pub min_response_time: f64,
    pub max_response_time: f64,
    pub success_count: u64,
    pub error_count: u64,
    pub error_rate: f64,
    pub progress: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

/// `test:status` (L2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStatus {
    pub test_id: String,
    #[serde(with = "DocumentedStatus")]
    pub status: PublicStatus,
    pub start_time: i64,
    pub current_users: u64,
    pub target_users: u32,
    pub progress: f64,
    pub message: String,
}

/// The names of [`PublicStatus`] in the key.
#[derive(Serialize, Deserialize)]
#[serde(remote = "PublicStatus", rename_all = "UPPERCASE")]
enum DocumentedStatus {
    Pending,
    Running,
    Completed,
    Failed,
    Cancelled,
}

/// A message on `notifications` (L8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notification {
    pub r#type: String,
    pub test_id: String,
    pub success: bool,
    pub message: String,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    pub users: u64,
    pub target_users: u32,
    pub percent: f64,
}

/// One second of a run for the views.
#[derive(Clone, Debug)]
pub struct LiveSample<'a> {
    pub point: &'a TimelinePoint,
    /// When the second ended, in Unix milliseconds.
    pub at: i64,
    /// Since the start of the run.
    pub succeeded: u64,
    /// Since the start of the run.
    pub failed: u64,
}

/// The result of adding a live session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    Added,
    /// The run has too many sessions.
    Full,
    /// The run ended so long ago that it has no sessions any more.
    Over,
}

/// Writes and reads the views.
#[derive(Clone, Debug)]
pub struct RunViews {
    store: Store,
    keys: Keys,
}

impl RunViews {
    #[must_use]
    pub fn new(store: Store, keys: Keys) -> Self {
        Self { store, keys }
    }

    /// Writes a second. A former coordinator cannot change anything, because its fence is too low.
    pub async fn publish(&self, run: &Run, progress: Progress, sample: &LiveSample<'_>) -> Result<(), Error> {
        let id = &run.id;
        let current = CurrentMetrics::new(id, progress, sample);
        let series = MetricType::ALL.iter().map(|metric| self.keys.timeline(id, metric));
        let mut keys = vec![self.keys.writer(id), self.keys.current(id), self.keys.status(id)];
        keys.extend(series);
        let call = PUBLISH.on(&keys).arg(run.fence).arg(millis(Keys::WRITER_TTL_MAX));
        let call = call.arg(json(&current)).arg(millis(Keys::CURRENT_TTL_MAX));
        let call = call.arg(json(&RunStatus::new(run, progress))).arg(millis(Keys::STATUS_TTL_BACKSTOP));
        let mut call = call.arg(sample.at).arg(millis(Keys::TIMELINE_TTL_MAX));
        for value in [current.tps, current.avg_response_time, current.active_users as f64, current.error_rate]
        {
            call = call.arg(timeline_member(value, sample.point.second));
        }
        let kinds = [[KeyType::String; 3].as_slice(), &[KeyType::Zset; 4]].concat();
        self.run::<Reply>(call, keys.into_iter().zip(kinds)).await.map(drop)
    }

    /// Writes the status of a run that has not ended.
    pub async fn status(&self, run: &Run, progress: Progress) -> Result<(), Error> {
        self.write_status(run, progress, Keys::STATUS_TTL_BACKSTOP).await
    }

    /// Writes the final statuses of runs again, each for the rest of its time (L2). The store may have lost them, or
    /// another client may have changed them.
    pub async fn restore_ended(&self, runs: &[Run], now: UnixMs) -> Result<(), Error> {
        for run in runs {
            let left = run.time_left(now, Keys::STATUS_TTL_AFTER);
            if !left.is_zero() {
                self.write_status(run, Progress::of(run), left).await?;
            }
        }
        Ok(())
    }

    async fn write_status(&self, run: &Run, progress: Progress, ttl: Duration) -> Result<(), Error> {
        let keys = [self.keys.writer(&run.id), self.keys.status(&run.id)];
        let call = STATUS.on(&keys).arg(run.fence).arg(millis(Keys::WRITER_TTL_MAX));
        let call = call.arg(json(&RunStatus::new(run, progress))).arg(millis(ttl));
        self.run::<Reply>(call, keys.map(|key| (key, KeyType::String))).await.map(drop)
    }

    /// How far a run is. Until the run ends, only its public status has this.
    pub async fn progress(&self, run: &Run) -> Result<Progress, Error> {
        let known = Progress::of(run);
        if run.state.is_final() {
            return Ok(known);
        }
        let key = self.keys.status(&run.id);
        let found: Option<Vec<u8>> = self.run(cmd("GET").arg(&key).clone(), [(key, KeyType::String)]).await?;
        let Some(status) = found.and_then(|text| serde_json::from_slice::<RunStatus>(&text).ok()) else {
            return Ok(known);
        };
        let target_users = status.target_users.max(known.target_users);
        Ok(Progress { users: status.current_users, target_users, percent: status.progress })
    }

    /// Writes the final status and deletes the keys of a running test (L11).
    pub async fn finish(&self, run: &Run, progress: Progress) -> Result<(), Error> {
        let (keys, id) = (&self.keys, &run.id);
        let writer = keys.writer(id);
        let keys = [writer.clone(), keys.status(id), keys.current(id), keys.buffer(id), keys.sessions(id)];
        let call = FINISH.on(&keys).arg(run.fence).arg(millis(Keys::WRITER_TTL_MAX));
        let call = call.arg(json(&RunStatus::new(run, progress))).arg(millis(Keys::STATUS_TTL_AFTER));
        let call = call.arg(millis(Keys::SESSIONS_TTL_AFTER));
        self.run::<Reply>(call, [(writer, KeyType::String)]).await?;
        self.deactivate(id).await
    }

    /// Publishes the state of a run (L8).
    pub async fn notify(&self, run: &Run) -> Result<(), Error> {
        let notification = Notification {
            r#type: notification_type(run.state).to_owned(),
            test_id: run.id.to_string(),
            success: run.state == RunState::Completed,
            message: run.message.clone(),
        };
        self.store.bus().publish(self.keys.notifications_channel(&run.id), json(&notification)).await?;
        Ok(())
    }

    /// Appends a second that is not committed to the database yet (L9).
    pub async fn buffer(&self, id: &TestId, entry: &str) -> Result<(), Error> {
        let call = BUFFER.on(&[self.keys.buffer(id)]);
        let call = call.arg(Keys::BUFFER_MAX_LEN).arg(millis(Keys::BUFFER_TTL_MAX)).arg(entry);
        self.run::<Reply>(call, [(self.keys.buffer(id), KeyType::List)]).await.map(drop)
    }

    /// Adds a run to the active ones (L5).
    pub async fn activate(&self, id: &TestId) -> Result<(), Error> {
        let key = self.keys.active(self.keys.space().shard_of(id.as_str()));
        self.run(cmd("SADD").arg(&key).arg(id.as_str()).clone(), [(key, KeyType::Set)]).await
    }

    pub async fn deactivate(&self, id: &TestId) -> Result<(), Error> {
        let key = self.keys.active(self.keys.space().shard_of(id.as_str()));
        self.run(cmd("SREM").arg(&key).arg(id.as_str()).clone(), [(key, KeyType::Set)]).await
    }

    /// The active runs of all shards, sorted.
    pub async fn active(&self) -> Result<Vec<String>, Error> {
        let mut all = Vec::new();
        for shard in self.keys.space().shards() {
            // Another client may have added something that is not an id.
            all.extend(self.active_in(shard).await?.into_iter().filter_map(|id| String::from_utf8(id).ok()));
        }
        all.sort();
        Ok(all)
    }

    /// Makes the set of active runs match the database (L5).
    pub async fn sweep_active(&self, runs: &[Run]) -> Result<(), Error> {
        for shard in self.keys.space().shards() {
            let key = self.keys.active(shard);
            let listed = self.active_in(shard).await?;
            let in_shard = |id: &&str| self.keys.space().shard_of(id) == shard;
            let active: Vec<&str> = runs.iter().map(|run| run.id.as_str()).filter(in_shard).collect();
            let mut calls: Vec<Call> = Vec::new();
            for stale in listed.iter().filter(|id| !active.iter().any(|known| known.as_bytes() == *id)) {
                calls.push(cmd("SREM").arg(&key).arg(stale).clone().into());
            }
            for missing in active.iter().filter(|id| !listed.iter().any(|known| known == id.as_bytes())) {
                calls.push(cmd("SADD").arg(&key).arg(missing).clone().into());
            }
            for answer in self.store.batch(&calls).await {
                answer?;
            }
        }
        Ok(())
    }

    /// Adds or renews a live session (L6).
    pub async fn add_session(
        &self,
        run: &Run,
        now: UnixMs,
        session: &SessionId,
        client_ip: &str,
        connected_at: i64,
    ) -> Result<Registration, Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Session<'a> {
            client_ip: &'a str,
            connected_at: i64,
        }
        let key = self.keys.sessions(&run.id);
        let ttl = match run.ended_at {
            Some(_) => run.time_left(now, Keys::SESSIONS_TTL_AFTER),
            None => Keys::SESSIONS_TTL_BACKSTOP,
        };
        if ttl.is_zero() {
            return Ok(Registration::Over);
        }
        let call = ADD_SESSION.on(&[&key]).arg(session.as_str());
        let call = call.arg(json(&Session { client_ip, connected_at })).arg(millis(ttl));
        let call = call.arg(Keys::SESSIONS_MAX_LEN);
        let reply: Reply = self.run(call, [(key, KeyType::Hash)]).await?;
        Ok(if reply.word() == "added" { Registration::Added } else { Registration::Full })
    }

    pub async fn remove_session(&self, id: &TestId, session: &SessionId) -> Result<(), Error> {
        let key = self.keys.sessions(id);
        self.run(cmd("HDEL").arg(&key).arg(session.as_str()).clone(), [(key, KeyType::Hash)]).await
    }

    /// The current metrics of a run, while it runs.
    pub async fn current(&self, id: &TestId) -> Result<Option<CurrentMetrics>, Error> {
        let key = self.keys.current(id);
        let found: Option<Vec<u8>> = self.run(cmd("GET").arg(&key).clone(), [(key, KeyType::String)]).await?;
        Ok(found.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    async fn active_in(&self, shard: hob_schema::Shard) -> Result<Vec<Vec<u8>>, Error> {
        let key = self.keys.active(shard);
        self.run(cmd("SMEMBERS").arg(&key).clone(), [(key, KeyType::Set)]).await
    }

    /// Runs a call. If another client has replaced a key by one of another type, that key is deleted first.
    async fn run<T: FromRedisValue>(
        &self,
        call: impl Into<Call>,
        keys: impl IntoIterator<Item = (Key, KeyType)>,
    ) -> Result<T, Error> {
        let keys: Vec<(Key, KeyType)> = keys.into_iter().collect();
        Ok(repair::run(&self.store, call, &keys).await?)
    }
}

impl Progress {
    /// What the database has: the planned users, and the rest once the run has ended.
    #[must_use]
    pub fn of(run: &Run) -> Self {
        Self { users: 0, target_users: run.target_users, percent: run.progress }
    }
}

impl CurrentMetrics {
    fn new(id: &TestId, progress: Progress, sample: &LiveSample<'_>) -> Self {
        let (point, latency) = (sample.point, &sample.point.latency);
        Self {
            test_id: id.to_string(),
            timestamp: sample.at,
            active_users: point.users,
            tps: point.requests as f64,
            avg_response_time: round(latency.mean),
            min_response_time: round(latency.min),
            max_response_time: round(latency.max),
            success_count: sample.succeeded,
            error_count: sample.failed,
            error_rate: round(per_cent(sample.failed, sample.failed + sample.succeeded)),
            progress: round(progress.percent),
            p50: round(latency.p50),
            p95: round(latency.p95),
            p99: round(latency.p99),
        }
    }
}

impl RunStatus {
    #[must_use]
    pub fn new(run: &Run, progress: Progress) -> Self {
        Self {
            test_id: run.id.to_string(),
            status: run.state.public_status(),
            start_time: run.start_at.unwrap_or(run.queued_at).0,
            current_users: if run.state.is_final() { 0 } else { progress.users },
            target_users: progress.target_users,
            progress: round(progress.percent),
            message: run.message.clone(),
        }
    }
}

fn notification_type(state: RunState) -> &'static str {
    match state {
        RunState::Pending => "TEST_QUEUED",
        RunState::Starting => "TEST_STARTING",
        RunState::Running => "TEST_STARTED",
        RunState::Paused => "TEST_PAUSED",
        RunState::Stopping => "TEST_STOPPING",
        RunState::Completed => "TEST_COMPLETED",
        RunState::Failed => "TEST_FAILED",
        RunState::Cancelled => "TEST_CANCELLED",
        RunState::Lost => "TEST_LOST",
    }
}

/// A value with three decimals, followed by the number of its second. The number is needed because a sorted set stores
/// equal members only once.
fn timeline_member(value: f64, second: u32) -> String {
    format!("{value:.3}{:06}", second % 1_000_000)
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L3
    #[test]
    fn equal_values_of_two_seconds_are_different_numbers() {
        let (first, second) = (timeline_member(0.0, 7), timeline_member(0.0, 8));
        assert_ne!(first, second);
        assert_eq!(timeline_member(1250.5, 17), "1250.500000017");
        assert!((first.parse::<f64>().unwrap() - 0.0).abs() < 0.001);
    }
}
