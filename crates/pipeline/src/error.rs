//! The error type of the crate.

use std::sync::Arc;

use crate::plan::PlanError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] hob_store::Error),
    #[error(transparent)]
    Database(#[from] hob_database::Error),
    /// Several callers share one write.
    #[error("cannot write to the call log: {0}")]
    CallLog(Arc<hob_database::Error>),
    /// The store lost its data again during a rebuild, and the retries are used up.
    #[error(
        "the store keeps losing data while the quota is rebuilt; check Redis for restarts, evictions or FLUSHALL"
    )]
    StoreUnstable,
    #[error("{what} {name:?} not found")]
    NotFound { what: &'static str, name: String },
    /// Invalid input.
    #[error("{field}: {reason}")]
    Invalid { field: &'static str, reason: String },
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Not possible in the current state.
    #[error("{0}")]
    Conflict(String),
    #[error("{what}: {source}")]
    File { what: String, source: std::io::Error },
    #[error("the database of a sink failed: {0}")]
    Sink(#[from] sqlx::Error),
    #[error("{field}: {refused}")]
    Secret { field: String, refused: hob_service::config::SecretDenied },
    #[error(transparent)]
    Keys(#[from] hob_schema::BadEnv),
}

impl Error {
    /// Whether the store handle reports it already; see [`hob_store::Error::is_reported`].
    pub(crate) fn is_reported(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_reported())
    }

    #[allow(clippy::needless_pass_by_value, reason = "made for `map_err`")]
    pub(crate) fn invalid(field: &'static str, reason: impl ToString) -> Self {
        Self::Invalid { field, reason: reason.to_string() }
    }

    pub(crate) fn secret(field: impl Into<String>, refused: hob_service::config::SecretDenied) -> Self {
        Self::Secret { field: field.into(), refused }
    }

    #[allow(clippy::needless_pass_by_value, reason = "made for `map_err`")]
    pub(crate) fn not_found(what: &'static str, name: impl ToString) -> Self {
        Self::NotFound { what, name: name.to_string() }
    }
}
