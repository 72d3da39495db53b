//! The logs of a run: its newest lines, its newest errors in a separate list (L4), and its seconds for live clients.
//! Entries are numbered, so that a reader notices missed entries.

use hob_store::Store;
use hob_store::log::{Entries, Log};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::generator::{UserEvent, UserEventKind};
use crate::keys::{Keys, TestId};
use crate::plan::Plan;

/// A line of the log. [`LogLine::documented`] is its form in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = LoadLogLine)]
pub struct LogLine {
    /// Unix milliseconds.
    pub timestamp: i64,
    pub level: LogLevel,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = LoadLogLevel)]
pub enum LogLevel {
    Info,
    Warn,
    Error,
}

/// The documented form of a [`LogLine`] (L4).
#[derive(Serialize, Deserialize)]
#[serde(remote = "LogLine", rename_all = "camelCase")]
struct DocumentedLine {
    timestamp: i64,
    #[serde(with = "DocumentedLevel")]
    level: LogLevel,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_id: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "LogLevel", rename_all = "UPPERCASE")]
enum DocumentedLevel {
    Info,
    Warn,
    Error,
}

/// One of the bounded lists of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    All,
    Errors,
    Seconds,
}

/// Writes and reads the logs of runs.
#[derive(Clone, Debug)]
pub struct RunLogs {
    store: Store,
    keys: Keys,
}

impl RunLogs {
    #[must_use]
    pub fn new(store: Store, keys: Keys) -> Self {
        Self { store, keys }
    }

    /// Appends lines; errors go to both lists.
    pub async fn write(&self, id: &TestId, lines: &[LogLine]) -> Result<(), Error> {
        let all: Vec<String> = lines.iter().map(LogLine::documented).collect();
        let is_error = |line: &&LogLine| line.level == LogLevel::Error;
        let errors: Vec<String> = lines.iter().filter(is_error).map(LogLine::documented).collect();
        self.append(id, LogStream::All, &all).await?;
        self.append(id, LogStream::Errors, &errors).await
    }

    pub(crate) async fn append(
        &self,
        id: &TestId,
        stream: LogStream,
        entries: &[String],
    ) -> Result<(), Error> {
        for part in entries.chunks(500) {
            self.on(id, stream, async |log| log.append(&self.store, part).await.map(drop)).await?;
        }
        Ok(())
    }

    /// The entries after a number; 0 for all.
    pub async fn read(
        &self,
        id: &TestId,
        stream: LogStream,
        after: u64,
        limit: u32,
    ) -> Result<Entries, Error> {
        self.on(id, stream, async |log| log.read(&self.store, after, limit).await).await
    }

    async fn on<T>(
        &self,
        id: &TestId,
        stream: LogStream,
        operation: impl AsyncFnOnce(Log<'_>) -> hob_store::Result<T>,
    ) -> Result<T, Error> {
        let keys = &self.keys;
        let (list, sequence, max_len, keep) = match stream {
            LogStream::All => (keys.logs(id), keys.log_sequence(id), Keys::LOGS_MAX_LEN, Keys::LOGS_TTL_MAX),
            LogStream::Errors => {
                (keys.errors(id), keys.error_sequence(id), Keys::ERRORS_MAX_LEN, Keys::ERRORS_TTL_MAX)
            }
            LogStream::Seconds => {
                (keys.seconds(id), keys.second_sequence(id), Keys::SECONDS_MAX_LEN, Keys::SECONDS_TTL_MAX)
            }
        };
        let log = Log { list: list.as_ref(), sequence: sequence.as_ref(), most: max_len as u32, keep };
        Ok(operation(log).await?)
    }
}

impl LogLine {
    #[must_use]
    pub fn new(timestamp: i64, level: LogLevel, message: impl Into<String>) -> Self {
        Self { timestamp, level, message: message.into(), user_id: None }
    }

    /// The line as it is stored, which is JSON.
    #[must_use]
    pub fn documented(&self) -> String {
        let mut text = Vec::new();
        let written = DocumentedLine::serialize(self, &mut serde_json::Serializer::new(&mut text));
        written.ok().and_then(|()| String::from_utf8(text).ok()).unwrap_or_default()
    }

    /// A line from the store; `None` if another program has written something else there.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        DocumentedLine::deserialize(&mut serde_json::Deserializer::from_slice(text)).ok()
    }

    /// The line for an event of a virtual user.
    #[must_use]
    pub(crate) fn of(event: &UserEvent, plan: &Plan, timestamp: i64) -> Self {
        let number = event.user + 1;
        let (level, message) = match event.kind {
            UserEventKind::Connected => (LogLevel::Info, format!("User {number} connected successfully")),
            UserEventKind::Failed { step, fault } => {
                (LogLevel::Error, format!("{}: {}", plan.steps[step].name, fault.describe(plan, step)))
            }
        };
        Self { user_id: Some(format!("user_{number:03}")), ..Self::new(timestamp, level, message) }
    }
}
