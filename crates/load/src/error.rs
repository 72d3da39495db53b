//! The errors of load.

use hob_histogram::DecodeError;
use hob_web::Problem;

use crate::generator::TargetError;
use crate::plan::Mistake;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Database(#[from] hob_database::Error),
    #[error(transparent)]
    Store(#[from] hob_store::Error),
    #[error(transparent)]
    Plan(#[from] Mistake),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("stored measurements are corrupt: {0}")]
    Decode(#[from] DecodeError),
    #[error("invalid key prefix of the load service: {0}")]
    Keys(#[from] hob_schema::BadEnv),
    #[error("stored report is not valid JSON: {0}")]
    Report(#[from] serde_json::Error),
    #[error("cannot start the generator: {0}")]
    Generator(#[from] std::io::Error),
}

impl Error {
    /// Whether the store handle reports it already; see [`hob_store::Error::is_reported`].
    pub(crate) fn is_reported(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_reported())
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Database(error) => error.into(),
            Error::Store(error) => error.into(),
            Error::Plan(Mistake { at, field, message }) => {
                Problem::invalid(format!("source:{}:{}:{field}", at.line, at.column), message)
            }
            Error::Target(error) => Problem::invalid("source", error.to_string()),
            other => Problem::internal(other),
        }
    }
}
