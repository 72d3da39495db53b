//! Errors when the server starts or reloads its configuration.

use std::net::SocketAddr;

use crate::config::MIN_ADMIN_TOKEN_CHARS;

/// Why [`Web`](crate::Web) could not be opened or a reloaded configuration was rejected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "cannot listen on {0} without an admin token; set HOB_ADMIN_TOKEN or [server] admin_token, or listen on a \
         loopback address"
    )]
    AdminTokenRequired(SocketAddr),
    #[error("[server] admin_token: {0}")]
    AdminToken(#[from] hob_service::config::SecretError),
    #[error(
        "the admin token is too weak; use at least {MIN_ADMIN_TOKEN_CHARS} random characters, for example the output of \
         `openssl rand -hex 24`"
    )]
    WeakAdminToken,
    #[error("the reloaded configuration has no admin token; restart the server to run it without one")]
    AdminTokenRemoved,
    #[error(
        "[sign_in.oidc] requires an admin token, because without one everyone on this machine has full access; set \
         HOB_ADMIN_TOKEN or [server] admin_token"
    )]
    OidcWithoutAdminToken,
    #[error("[sign_in.oidc] client_secret: {0}")]
    ClientSecret(#[source] hob_service::config::SecretError),
    #[error("TLS requires both [server] tls_certificate and [server] tls_key")]
    IncompleteTls,
    #[error(transparent)]
    Tls(#[from] hob_net::TlsError),
    #[error(transparent)]
    Database(#[from] hob_database::Error),
    #[error(transparent)]
    Keys(#[from] hob_schema::BadEnv),
    #[error(transparent)]
    Store(#[from] hob_store::Error),
    #[error("cannot listen for connections: {0}")]
    Listen(#[from] std::io::Error),
}
