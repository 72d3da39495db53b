//! Errors of this service.

use std::path::PathBuf;

use hob_web::Problem;

/// An operation could not be carried out. A refusal is not an error but a value of the operation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] hob_store::Error),
    #[error(transparent)]
    Database(#[from] hob_database::Error),
    #[error("invalid key prefix: {0}")]
    Keys(String),
    /// Rows that another program or a later version has written.
    #[error("cannot read a stored value from the database: {0}")]
    Unreadable(String),
    #[error("cannot read root certificates from {path}: {reason}", path = path.display())]
    Roots { path: PathBuf, reason: String },
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
            Error::Store(error) => error.into(),
            Error::Database(error) => error.into(),
            error => Self::internal(error),
        }
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;
