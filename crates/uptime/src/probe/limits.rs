//! Limits of checks: addresses that are allowed, and the size of responses.

use std::net::SocketAddr;

use hob_net::Outbound;
use rustls_pki_types::CertificateDer;

#[derive(Clone, Debug)]
pub struct Limits {
    /// Addresses that checks and webhooks may connect to.
    pub outbound: Outbound,
    /// A check fails if the response body is larger.
    pub max_body_bytes: usize,
    /// Certificate authorities that are trusted besides the public ones.
    pub roots: Vec<CertificateDer<'static>>,
    /// Default: the name servers of the system.
    pub name_server: Option<SocketAddr>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { outbound: Outbound::default(), max_body_bytes: 1 << 20, roots: Vec::new(), name_server: None }
    }
}
