//! The `[server]` section of `hob.toml`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use hob_service::config::Secret;
use hob_service::{Period, SecretRef};

use crate::Error;

/// Where the admin token is looked for when the configuration says nothing.
const ADMIN_VARIABLE: &str = "HOB_ADMIN_TOKEN";

/// The shortest admin token, so that it cannot be guessed.
const MIN_ADMIN_TOKEN_CHARS: usize = 16;

hob_service::section! {
    /// The HTTP server of the API and the console: address, access, limits.
    pub struct Config("server") {
        /// The address to listen on. Any address other than loopback requires an admin token.
        pub listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 7070)),
        /// Host names that browsers may use for this server, besides localhost and IP addresses.
        pub hosts: Vec<String> = Vec::new(),
        /// The token with full access, as env:NAME or file:PATH. Default: env:HOB_ADMIN_TOKEN. Without a token, everyone
        /// on this machine has full access.
        pub admin_token: Option<SecretRef> = None,
        /// The file with the certificate chain (PEM). Enables TLS.
        pub tls_certificate: Option<PathBuf> = None,
        /// The file with the private key of the certificate (PEM).
        pub tls_key: Option<PathBuf> = None,
        /// The most concurrent connections. Further ones wait to be accepted.
        pub max_connections: u32 = 20_000,
        /// The most concurrent requests. Further ones get status 503.
        pub max_requests: u32 = 1_024,
        /// The largest request body, in KiB. Some routes accept more.
        pub max_body_kib: u32 = 1_024,
        /// How long a client may take to send the request headers.
        pub header_timeout: Period = Period::from_secs(10),
        /// How long a request may take until its response starts.
        pub request_timeout: Period = Period::from_secs(30),
        /// How long a client may stop reading before the connection is closed.
        pub write_timeout: Period = Period::from_secs(30),
        /// How long running requests may take to finish after the server starts to shut down.
        pub drain_timeout: Period = Period::from_secs(10),
        /// How long a console session lasts.
        pub session_ttl: Period = Period::from_secs(12 * 3_600),
        /// How long entries of the audit log are kept.
        pub keep_audit_log: Period = Period::from_days(90),
    }
}

impl Config {
    /// Reads the admin token. Fails if there is none and the address is not loopback.
    pub fn admin(&self) -> Result<Option<Secret>, Error> {
        let admin = match &self.admin_token {
            Some(reference) => Some(reference.read()?),
            None => SecretRef::Env(ADMIN_VARIABLE.to_owned()).read().ok(),
        };
        match &admin {
            None if !self.listen.ip().is_loopback() => Err(Error::AdminTokenRequired(self.listen)),
            Some(secret) if secret.reveal().len() < MIN_ADMIN_TOKEN_CHARS => {
                Err(Error::ShortAdminToken { least: MIN_ADMIN_TOKEN_CHARS })
            }
            _ => Ok(admin),
        }
    }
}
