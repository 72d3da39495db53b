//! What can go wrong with load tests.

use hob_web::Problem;

use crate::generator::Refused;
use crate::plan::Mistake;
use crate::results::codec::BadBytes;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Database(#[from] hob_database::Error),
    #[error(transparent)]
    Store(#[from] hob_store::Error),
    #[error(transparent)]
    Plan(#[from] Mistake),
    #[error(transparent)]
    Target(#[from] Refused),
    #[error(transparent)]
    Bytes(#[from] BadBytes),
    #[error("the keys of load tests: {0}")]
    Keys(#[from] hob_schema::BadEnv),
    #[error("a report cannot be read: {0}")]
    Report(#[from] serde_json::Error),
    #[error("the generator could not start: {0}")]
    Generator(#[from] std::io::Error),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Database(error) => error.into(),
            Error::Store(error) => error.into(),
            Error::Plan(Mistake { at, field, message }) => {
                Problem::invalid(format!("source:{}:{}:{field}", at.line, at.column), message)
            }
            Error::Target(refused) => Problem::invalid("source", refused.to_string()),
            other => Problem::internal(other),
        }
    }
}
