//! What can keep this crate from answering.

use crate::catalog::Clash;
use crate::model::BadEnv;
use crate::source::Mistakes;

/// Could not answer. (A violation found in a keyspace is a value, not an error.)
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Mistakes(#[from] Mistakes),
    #[error(transparent)]
    Clash(#[from] Clash),
    #[error(transparent)]
    Env(#[from] BadEnv),
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[cfg(feature = "live")]
    #[error("{what}: {source}")]
    Redis { what: String, source: redis::RedisError },
    #[error("{0}")]
    Refused(String),
}
