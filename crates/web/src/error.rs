//! What can go wrong before anything is served.

use std::net::SocketAddr;

/// Why the web could not be opened, or a reloaded configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "{0} can be reached from elsewhere, and there is no admin token: set HOB_ADMIN_TOKEN, or \
         server.admin_token (env:NAME or file:PATH), or listen on a loopback address"
    )]
    OpenToAll(SocketAddr),
    #[error("server.admin_token: {0}")]
    AdminToken(#[from] hob_service::config::NoSecret),
    #[error(
        "server.admin_token is too short: {least} characters at least, such as `openssl rand -hex 24` prints"
    )]
    ShortAdminToken { least: usize },
    #[error(
        "this server has an admin token and the reloaded configuration has none; restart it to run without one"
    )]
    AdminTokenRemoved,
    #[error("TLS needs both server.tls_certificate and server.tls_key")]
    HalfTls,
    #[error(transparent)]
    Tls(#[from] hob_net::TlsError),
    #[error(transparent)]
    Database(#[from] hob_database::Error),
    #[error(transparent)]
    Keys(#[from] hob_schema::BadEnv),
    #[error(transparent)]
    Store(#[from] hob_store::Error),
    #[error("could not listen: {0}")]
    Listen(#[from] std::io::Error),
}
