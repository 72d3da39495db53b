//! The API: quotas, plans, runs and the connection's health, with the pages beside it.

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

/// An id that cannot be is one that nothing has.
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
                tracing::warn!(%error, "a quota did not answer");
                Problem::unavailable("The quota cannot be asked right now. Nothing was spent.")
            }
            Error::Secret { field, refused } => Problem::invalid(field, refused.to_string()),
            error @ (Error::File { .. } | Error::Sink(_) | Error::Keys(_)) => Problem::internal(error),
        }
    }
}
