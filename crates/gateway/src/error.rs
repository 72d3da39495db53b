//! Why the gateway could not do what it was asked. A request that is refused is no error.

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] hob_store::Error),
    #[error(transparent)]
    Database(#[from] hob_database::Error),
    #[error("the gateway's configuration: {0}")]
    Policy(#[from] crate::BadPolicy),
    #[error("the gateway's configuration: {0}")]
    Config(String),
    #[error("REDIS_KEY_PREFIX: {0}")]
    Keys(#[from] hob_schema::BadEnv),
    #[error("the gateway could not listen on {address}: {source}")]
    Listen { address: std::net::SocketAddr, source: std::io::Error },
}
