//! The log of a run (L4): the newest lines, the newest errors in a ring of their own, and its seconds for those who
//! watch it live. All of them are numbered, so that a reader knows what it has missed.

use hob_store::Store;
use hob_store::log::{Entries, Log};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::generator::{Happening, Sample};
use crate::keys::{Keys, TestId};
use crate::plan::Plan;

/// A line, as it stands in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LoadLogLine)]
pub struct Line {
    /// Unix milliseconds.
    pub timestamp: i64,
    pub level: Level,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schema(as = LoadLogLevel)]
pub enum Level {
    Info,
    Warn,
    Error,
}

/// Which of a run's rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    All,
    Errors,
    Seconds,
}

/// Writes and reads the rings.
#[derive(Clone, Debug)]
pub struct Logs {
    store: Store,
    keys: Keys,
}

impl Logs {
    #[must_use]
    pub fn new(store: Store, keys: Keys) -> Self {
        Self { store, keys }
    }

    /// Adds lines; errors go into both rings.
    pub async fn write(&self, id: &TestId, lines: &[Line]) -> Result<(), Error> {
        let text = |line: &Line| serde_json::to_string(line).unwrap_or_default();
        let all: Vec<String> = lines.iter().map(text).collect();
        let is_error = |line: &&Line| line.level == Level::Error;
        let errors: Vec<String> = lines.iter().filter(is_error).map(text).collect();
        self.append(id, Ring::All, &all).await?;
        self.append(id, Ring::Errors, &errors).await
    }

    pub(crate) async fn append(&self, id: &TestId, ring: Ring, entries: &[String]) -> Result<(), Error> {
        for part in entries.chunks(500) {
            self.on(id, ring, async |log| log.append(&self.store, part).await.map(drop)).await?;
        }
        Ok(())
    }

    /// The entries after a number; 0 for all that are kept.
    pub async fn read(&self, id: &TestId, ring: Ring, after: u64, most: u32) -> Result<Entries, Error> {
        self.on(id, ring, async |log| log.read(&self.store, after, most).await).await
    }

    async fn on<T>(
        &self,
        id: &TestId,
        ring: Ring,
        act: impl AsyncFnOnce(Log<'_>) -> hob_store::Result<T>,
    ) -> Result<T, Error> {
        let keys = &self.keys;
        let (list, sequence, most, keep) = match ring {
            Ring::All => (keys.logs(id), keys.log_sequence(id), Keys::LOGS_MAX_LEN, Keys::LOGS_TTL_MAX),
            Ring::Errors => {
                (keys.errors(id), keys.error_sequence(id), Keys::ERRORS_MAX_LEN, Keys::ERRORS_TTL_MAX)
            }
            Ring::Seconds => {
                (keys.seconds(id), keys.second_sequence(id), Keys::SECONDS_MAX_LEN, Keys::SECONDS_TTL_MAX)
            }
        };
        let log = Log { list: list.as_ref(), sequence: sequence.as_ref(), most: most as u32, keep };
        Ok(act(log).await?)
    }
}

impl Line {
    #[must_use]
    pub fn new(timestamp: i64, level: Level, message: impl Into<String>) -> Self {
        Self { timestamp, level, message: message.into(), user_id: None }
    }

    /// What happened to a user of a run of this plan.
    #[must_use]
    pub(crate) fn of(sample: &Sample, plan: &Plan, timestamp: i64) -> Self {
        let number = sample.user + 1;
        let (level, message) = match sample.what {
            Happening::Connected => (Level::Info, format!("User {number} connected successfully")),
            Happening::Failed { step, fault } => {
                (Level::Error, format!("{}: {}", plan.steps[step].name, fault.describe(plan, step)))
            }
        };
        Self { user_id: Some(format!("user_{number:03}")), ..Self::new(timestamp, level, message) }
    }
}
