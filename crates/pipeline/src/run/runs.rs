//! Access to runs in the database, without executing them.

use hob_database::{Database, Page, PageRequest};

use crate::database;
use crate::error::Result;
use crate::plan::PlanName;
use crate::plan::retry::FailureClass;
use crate::run::item::{self, ItemState, ItemSummary, Progress};
use crate::run::{self, Run, RunAction, RunId, RunState};
use crate::sink::Output;

/// Reads and controls runs. Needs no store.
#[derive(Clone, Debug)]
pub struct Runs {
    database: Database,
}

impl Runs {
    pub fn new(database: &Database) -> Self {
        Self { database: database.clone() }
    }

    pub async fn run(&self, id: &RunId) -> Result<Run> {
        run::find(&self.database, id).await
    }

    pub async fn runs(&self, request: &PageRequest) -> Result<Page<Run>> {
        Ok(database::runs::page(&self.database, request).await?)
    }

    /// The newest run of a plan, in any state.
    pub async fn newest(&self, plan: &PlanName) -> Result<Option<Run>> {
        Ok(database::runs::newest(&self.database, plan).await?)
    }

    /// Pauses, resumes, cancels or archives a run.
    pub async fn apply(&self, id: &RunId, action: RunAction) -> Result<Run> {
        let run = run::apply(&self.database, id, action).await?;
        tracing::info!(run = %id, state = %run.state, "state of a pipeline run changed");
        Ok(run)
    }

    /// Retries dead letters, all or those of a class. A completed run is running again afterwards.
    pub async fn replay(&self, id: &RunId, class: Option<FailureClass>) -> Result<u64> {
        let run = self.run(id).await?;
        if run.state.after(RunAction::Replay).is_none() {
            return Err(crate::Error::Conflict(format!("a {} run cannot {}", run.state, RunAction::Replay)));
        }
        let back = item::replay(&self.database, id, class).await?;
        if back > 0 && run.state == RunState::Completed {
            self.apply(id, RunAction::Replay).await?;
        }
        Ok(back)
    }

    pub async fn progress(&self, id: &RunId) -> Result<Progress> {
        item::progress(&self.database, id).await
    }

    /// What the sinks of a run have received.
    pub async fn outputs(&self, id: &RunId) -> Result<Vec<Output>> {
        Ok(database::outputs::list(&self.database, id).await?)
    }

    pub async fn items(
        &self,
        id: &RunId,
        state: Option<ItemState>,
        class: Option<FailureClass>,
        request: &PageRequest,
    ) -> Result<Page<ItemSummary>> {
        Ok(database::items::page(&self.database, id, state, class, request).await?)
    }
}
