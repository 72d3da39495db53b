//! Runs as they are in the database, for whoever wants to look at them or to steer them without working on them.

use hob_database::{Database, Page, PageRequest};

use crate::database;
use crate::error::Result;
use crate::plan::PlanName;
use crate::plan::retry::Class;
use crate::run::item::{self, ItemFacts, ItemState, Progress};
use crate::run::{self, Run, RunId, RunState, Wish};
use crate::sink::Output;

/// The database of runs.
#[derive(Clone, Debug)]
pub struct Books {
    database: Database,
}

impl Books {
    pub fn new(database: &Database) -> Self {
        Self { database: database.clone() }
    }

    pub async fn run(&self, id: &RunId) -> Result<Run> {
        run::find(&self.database, id).await
    }

    pub async fn runs(&self, request: &PageRequest) -> Result<Page<Run>> {
        Ok(database::runs::page(&self.database, request).await?)
    }

    /// The newest run of a plan, whatever its state.
    pub async fn newest(&self, plan: &PlanName) -> Result<Option<Run>> {
        Ok(database::runs::newest(&self.database, plan).await?)
    }

    /// Pauses, resumes, cancels or archives a run.
    pub async fn wish(&self, id: &RunId, wish: Wish) -> Result<Run> {
        let run = run::wish(&self.database, id, wish).await?;
        tracing::info!(run = %id, state = %run.state, "a run changes");
        Ok(run)
    }

    /// Lets items that were set aside, all or those of a class, be tried again; the run goes on for them.
    pub async fn replay(&self, id: &RunId, class: Option<Class>) -> Result<u64> {
        let run = self.run(id).await?;
        if run.state.after(Wish::Replay).is_none() {
            return Err(crate::Error::Refused(format!(
                "a run that is {} cannot {}",
                run.state,
                Wish::Replay
            )));
        }
        let back = item::replay(&self.database, id, class).await?;
        if back > 0 && run.state == RunState::Completed {
            self.wish(id, Wish::Replay).await?;
        }
        Ok(back)
    }

    pub async fn progress(&self, id: &RunId) -> Result<Progress> {
        item::progress(&self.database, id).await
    }

    /// What the sinks of a run have got.
    pub async fn outputs(&self, id: &RunId) -> Result<Vec<Output>> {
        Ok(database::outputs::list(&self.database, id).await?)
    }

    pub async fn items(
        &self,
        id: &RunId,
        state: Option<ItemState>,
        class: Option<Class>,
        request: &PageRequest,
    ) -> Result<Page<ItemFacts>> {
        Ok(database::items::page(&self.database, id, state, class, request).await?)
    }
}
