//! Why uptime could not answer.

use std::path::PathBuf;

use hob_web::Problem;

/// An error means that nobody could answer; what is refused for a reason is a value of its own.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] hob_store::Error),
    #[error(transparent)]
    Database(#[from] hob_database::Error),
    #[error("bad key prefix: {0}")]
    Keys(String),
    /// Rows that this program did not write, or a later one did.
    #[error("the database holds {0}")]
    Unreadable(String),
    #[error("cannot read root certificates from {path}: {reason}", path = path.display())]
    Roots { path: PathBuf, reason: String },
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(error) => error.into(),
            Error::Database(error) => error.into(),
            error => Self::internal(error),
        }
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;
