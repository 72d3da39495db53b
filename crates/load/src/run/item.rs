//! Runs with what a list shows: the plan, the runners and the key figures.

use hob_database::{FromRow, Page, PageRequest, Row};
use serde::Serialize;
use utoipa::ToSchema;

use super::Run;
use crate::Error;
use crate::database::runs;
use crate::keys::TestId;
use crate::load::Load;
use crate::plan::catalog::PlanId;

/// A run in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct RunItem {
    pub run: Run,
    pub plan_name: String,
    /// The number of runners that joined.
    pub runners_joined: u32,
    /// Once the run has a report.
    pub figures: Option<RunFigures>,
}

/// The key figures of a report.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = LoadRunFigures)]
pub struct RunFigures {
    pub requests: u64,
    pub failed: u64,
    /// Requests per second.
    pub rate: f64,
    /// Of successful requests, from the intended start, in milliseconds.
    pub p95: f64,
}

impl FromRow for RunItem {
    fn from_row(row: &Row) -> Result<Self, hob_database::Error> {
        let requests: Option<u64> = row.get("requests")?;
        let figures = match requests {
            None => None,
            Some(requests) => Some(RunFigures {
                requests,
                failed: row.get("failed")?,
                rate: row.get("rate")?,
                p95: row.get("p95")?,
            }),
        };
        let (plan_name, runners_joined) = (row.get("plan_name")?, row.get("runners_joined")?);
        Ok(Self { run: Run::from_row(row)?, plan_name, runners_joined, figures })
    }
}

impl Load {
    /// A run with what a list shows.
    pub async fn run_item(&self, id: &TestId) -> Result<Option<RunItem>, Error> {
        Ok(runs::find_item(&self.inner.context.database, id).await?)
    }

    /// Runs with what a list shows, newest first.
    pub async fn run_items(
        &self,
        plan: Option<PlanId>,
        request: &PageRequest,
    ) -> Result<Page<RunItem>, Error> {
        Ok(runs::page_of_items(&self.inner.context.database, plan, request).await?)
    }
}
