//! The `[server]` section of `hob.toml`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use hob_service::config::Secret;
use hob_service::{Period, SecretRef};

use crate::Error;

/// Where the admin token is looked for when the configuration says nothing.
const ADMIN_VARIABLE: &str = "HOB_ADMIN_TOKEN";

/// The shortest admin token that nobody guesses.
const SHORTEST_ADMIN_TOKEN: usize = 16;

hob_service::section! {
    /// The API and the console: where they listen, who may enter, how much they take.
    pub struct Config("server") {
        /// Where the API and the console are. Any other than a loopback address needs an admin token.
        pub listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 7070)),
        /// Names under which browsers may reach this server, besides loopback ones and the address it listens on.
        pub hosts: Vec<String> = Vec::new(),
        /// The token that may do everything, as env:NAME or file:PATH; env:HOB_ADMIN_TOKEN when not given. Without one,
        /// everybody on this machine may.
        pub admin_token: Option<SecretRef> = None,
        /// A file with the certificate chain (PEM). With it the server speaks TLS.
        pub tls_certificate: Option<PathBuf> = None,
        /// A file with the certificate's private key (PEM).
        pub tls_key: Option<PathBuf> = None,
        /// The most connections at a time. Further ones wait to be accepted.
        pub max_connections: u32 = 20_000,
        /// The most requests that are worked on at a time. Further ones get 503.
        pub max_requests: u32 = 1_024,
        /// The largest body of a request, in KiB. Single routes may take more.
        pub max_body_kib: u32 = 1_024,
        /// How long a client may take to send the head of a request.
        pub head_within: Period = Period::from_secs(10),
        /// How long a request may take until its answer begins.
        pub answer_within: Period = Period::from_secs(30),
        /// How long a client may leave unread what it is sent.
        pub unread_within: Period = Period::from_secs(30),
        /// How long requests may continue after the server begins to stop.
        pub drain_within: Period = Period::from_secs(10),
        /// How long a sign-in to the console lasts.
        pub session_lasts: Period = Period::from_secs(12 * 3_600),
        /// How long the audit trail remembers.
        pub audit_kept: Period = Period::from_days(90),
    }
}

impl Config {
    /// Reads the token that may do everything. Refuses to be open to everybody on an address that others can reach.
    pub fn admin(&self) -> Result<Option<Secret>, Error> {
        let admin = match &self.admin_token {
            Some(reference) => Some(reference.read()?),
            None => SecretRef::Env(ADMIN_VARIABLE.to_owned()).read().ok(),
        };
        match &admin {
            None if !self.listen.ip().is_loopback() => Err(Error::OpenToAll(self.listen)),
            Some(secret) if secret.reveal().len() < SHORTEST_ADMIN_TOKEN => {
                Err(Error::ShortAdminToken { least: SHORTEST_ADMIN_TOKEN })
            }
            _ => Ok(admin),
        }
    }
}
