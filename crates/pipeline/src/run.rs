//! Runs of plans and their states. A run is a row in the database, so it can take months.

mod attempt;
pub(crate) mod client;
pub(crate) mod driver;
mod extract;
pub mod forecast;
mod held_claims;
pub(crate) mod host_permits;
pub(crate) mod item;
pub(crate) mod preview;
pub(crate) mod runs;
pub(crate) mod seed;
pub(crate) mod view;

use std::fmt;
use std::str::FromStr;

use hob_database::{Database, Isolation, Read, UnixMs};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::database;
use crate::error::{Error, Result};
use crate::keys::DagRunId;
use crate::plan::{Plan, PlanName};

/// The id of a run. It may contain a time, like the run ids of Airflow.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(DagRunId);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    Running,
    Paused,
    /// All items are done or dead letters.
    Completed,
    Cancelled,
    /// Hidden, and deleted after `keep_archived`.
    Archived,
}

/// A change of state that a user or the driver requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAction {
    Pause,
    Resume,
    Cancel,
    Complete,
    Replay,
    Archive,
}

/// A run as it is in the database.
#[derive(Clone, Debug)]
pub struct Run {
    pub id: RunId,
    pub plan: PlanName,
    /// The plan at the start of the run.
    pub text: String,
    pub state: RunState,
    pub version: u64,
    pub seeded_to: i64,
    pub calls: u64,
    /// Why the run is blocked; empty if it is not.
    pub trouble: String,
    pub started_at: UnixMs,
    pub changed_at: UnixMs,
}

/// Value of `seeded_to` when the whole source has become items.
pub(crate) const SEEDED: i64 = -1;

hob_units::names!(RunState {
    Running = "running",
    Paused = "paused",
    Completed = "completed",
    Cancelled = "cancelled",
    Archived = "archived",
});

impl RunState {
    /// The state after an action; `None` if the action is not allowed.
    pub fn after(self, action: RunAction) -> Option<RunState> {
        use RunState::{Archived, Cancelled, Completed, Paused, Running};
        match (self, action) {
            (Running, RunAction::Pause) => Some(Paused),
            (Paused, RunAction::Resume) => Some(Running),
            (Running | Paused, RunAction::Cancel) => Some(Cancelled),
            (Running, RunAction::Complete) => Some(Completed),
            (Running | Completed, RunAction::Replay) => Some(Running),
            (Paused, RunAction::Replay) => Some(Paused),
            (Completed | Cancelled, RunAction::Archive) => Some(Archived),
            _ => None,
        }
    }
}

/// Starts a run of a plan. If a run of the same plan has this id already, returns that run.
pub(crate) async fn start(database: &Database, id: &RunId, plan: &Plan) -> Result<Run> {
    database
        .write(|tx| async move {
            database::runs::insert(&tx, id, plan).await?;
            let run = database::runs::get(&tx, id).await?;
            if run.text != plan.text {
                return Err(Error::Conflict(format!(
                    "run {id} exists and has another plan; choose another id"
                )));
            }
            Ok(run)
        })
        .await
}

pub(crate) async fn find(on: &impl Read, id: &RunId) -> Result<Run> {
    database::runs::find(on, id).await?.ok_or_else(|| Error::not_found("run", id))
}

/// Applies an action, if the state of the run allows it. Idempotent.
pub(crate) async fn apply(database: &Database, id: &RunId, action: RunAction) -> Result<Run> {
    database
        .write(|tx| async move {
            let run = find(&tx, id).await?;
            let Some(next) = run.state.after(action) else {
                return match (run.state, action) {
                    (RunState::Paused, RunAction::Pause)
                    | (RunState::Running, RunAction::Resume)
                    | (RunState::Cancelled, RunAction::Cancel) => Ok(run),
                    _ => Err(Error::Conflict(format!("a {} run cannot {action}", run.state))),
                };
            };
            database::runs::set_state(&tx, id, next).await?;
            Ok(database::runs::get(&tx, id).await?)
        })
        .await
}

/// Completes a run that has nothing left to do; `false` if it has.
pub(crate) async fn complete(database: &Database, id: &RunId) -> Result<bool> {
    database.write(|tx| async move { Ok(database::runs::complete(&tx, id).await?) }).await
}

/// Deletes runs that were archived longer ago than `keep`.
pub(crate) async fn delete_archived(database: &Database, keep: std::time::Duration) -> Result<u64> {
    let mut deleted = 0;
    loop {
        let removed = database
            .write_with(Isolation::ReadCommitted, |tx| async move {
                let Some(id) = database::runs::archived_before(&tx, tx.now().minus(keep)).await? else {
                    return Ok::<_, Error>(false);
                };
                database::runs::delete(&tx, &id).await?;
                Ok(true)
            })
            .await?;
        if !removed {
            return Ok(deleted);
        }
        deleted += 1;
    }
}

impl RunId {
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    pub(crate) fn id(&self) -> &DagRunId {
        &self.0
    }
}

impl FromStr for RunId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+:".contains(&byte);
        if !text.bytes().all(allowed) {
            return Err(Error::invalid("run", "a run id has letters, digits, '.', '_', '-', '+' and ':'"));
        }
        DagRunId::new(text).map(Self).map_err(|error| Error::invalid("run", error))
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for RunAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RunAction::Pause => "pause",
            RunAction::Resume => "resume",
            RunAction::Cancel => "be cancelled",
            RunAction::Complete => "complete",
            RunAction::Replay => "be replayed",
            RunAction::Archive => "be archived",
        })
    }
}

hob_database::column!(RunId as text);
hob_database::column!(RunState as text);

#[cfg(test)]
mod tests {
    use super::*;

    /// P7
    #[test]
    fn ended_run_restarts_only_by_replay() {
        for action in
            [RunAction::Pause, RunAction::Resume, RunAction::Cancel, RunAction::Complete, RunAction::Archive]
        {
            assert_ne!(RunState::Completed.after(action), Some(RunState::Running), "{action:?}");
            assert_ne!(RunState::Cancelled.after(action), Some(RunState::Running), "{action:?}");
        }
        assert_eq!(RunState::Completed.after(RunAction::Replay), Some(RunState::Running));
        assert_eq!(RunState::Cancelled.after(RunAction::Replay), None);
        assert_eq!(RunState::Archived.after(RunAction::Replay), None);
    }
}
