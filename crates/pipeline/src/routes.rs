//! The HTTP API: quotas, plans, runs, and the health of the store connection.

mod health;
mod plans;
mod quotas;
mod runs;

use hob_web::{Problem, Routes};

use crate::error::Error;
use crate::pipeline::Pipelines;
use crate::run::RunId;

pub(crate) fn routes() -> Routes<Pipelines> {
    quotas::routes().merge(plans::routes()).merge(runs::routes()).merge(health::routes())
}

/// An invalid id is not found.
pub(crate) fn run_id(id: &str) -> Result<RunId, Problem> {
    id.parse().map_err(|_| Problem::not_found("run"))
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(error) => error.into(),
            Error::Database(error) => error.into(),
            Error::NotFound { what, .. } => Problem::not_found(what),
            Error::Invalid { field, reason } => Problem::invalid(field, reason),
            Error::Plan(bad) => Problem::invalid(bad.field, format!("line {}: {}", bad.line, bad.reason)),
            Error::Conflict(reason) => Problem::conflict(reason),
            error @ (Error::CallLog(_) | Error::StoreUnstable) => {
                tracing::warn!(%error, "quota is unavailable");
                Problem::unavailable("The quota is unavailable; no calls were reserved. Retry later.")
            }
            Error::Secret { field, refused } => Problem::invalid(field, refused.to_string()),
            error @ (Error::File { .. } | Error::Sink(_) | Error::Keys(_)) => Problem::internal(error),
        }
    }
}
