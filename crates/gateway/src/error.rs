//! Errors of the gateway. A refused request is not an error.

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] hob_store::Error),
    #[error(transparent)]
    Database(#[from] hob_database::Error),
    #[error("invalid gateway configuration: {0}")]
    Policy(#[from] hob_admission::BadPolicy),
    #[error("invalid gateway configuration: {0}")]
    Config(String),
    #[error(transparent)]
    Keys(#[from] hob_schema::BadEnv),
    #[error("cannot listen on {address}: {source}; set [gateway] listen to a free address")]
    Listen { address: std::net::SocketAddr, source: std::io::Error },
}

impl Error {
    /// Whether the store handle reports it already; see [`hob_store::Error::is_reported`].
    pub(crate) fn is_reported(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_reported())
    }
}
