//! The `[uptime]` section of `hob.toml`.

use std::net::SocketAddr;
use std::path::PathBuf;

use hob_service::{Period, SecretRef};
use ipnet::IpNet;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::error::{Error, Result};
use crate::probe::{Limits, Targets};

hob_service::section! {
    /// Uptime: checks, incidents, alerts, the status page.
    pub struct Config("uptime") {
        /// How many checks this node runs at a time. 0 runs none: the node only shows what others found.
        pub concurrency: u32 = 512,
        /// How long after its timeout a check may still be recorded before another worker takes it over.
        pub grace: Period = Period::from_secs(5),
        /// How long every single result is kept.
        pub keep_results: Period = Period::from_days(7),
        /// How long hourly summaries are kept.
        pub keep_hours: Period = Period::from_days(100),
        /// How long daily summaries and closed incidents are kept.
        pub keep_days: Period = Period::from_days(730),
        /// Addresses, as `host:port`, of which at least one can be reached while this node's own network is well.
        /// While none can, its failed checks are not counted. Without any, it only asks whether there is a route.
        pub anchors: Vec<String> = Vec::new(),
        /// What the public status page is called.
        pub status_title: String = "Status".to_owned(),
        /// Whether checks and webhooks may look at loopback, private and other addresses that are not public. Say no
        /// where people may add monitors who should not look around in this network. Heeded after a restart.
        pub private_targets: bool = true,
        /// Networks, as `10.1.0.0/16`, that may be looked at even so.
        pub allowed_networks: Vec<IpNet> = Vec::new(),
        /// An answer with a larger body is a failure.
        pub largest_body_kib: u32 = 1024,
        /// A PEM file with authorities that are trusted besides the public ones.
        pub roots: Option<PathBuf> = None,
        /// The name server to ask, as `address:port`; otherwise whom the system asks.
        pub name_server: Option<SocketAddr> = None,
        /// Where the address of the mail server is, since it holds a password: `env:NAME` or `file:PATH` of
        /// `smtps://user:password@host` or `smtp://host?tls=required`.
        pub smtp: Option<SecretRef> = None,
        /// Who alerts by e-mail are from.
        pub mail_from: String = "Hob <hob@localhost>".to_owned(),
        /// How often an alert is tried.
        pub alert_attempts: u32 = 10,
        /// How long after the first failed attempt it is tried again; then twice as long, up to half an hour.
        pub alert_pause: Period = Period::from_secs(10),
        /// How long one attempt may take.
        pub alert_timeout: Period = Period::from_secs(10),
    }
}

impl Config {
    /// What checks may do.
    pub fn limits(&self) -> Result<Limits> {
        let targets = if self.private_targets {
            Targets::All
        } else {
            Targets::Public { allowed: self.allowed_networks.clone() }
        };
        Ok(Limits {
            targets,
            max_body_bytes: self.largest_body_kib as usize * 1024,
            roots: self.read_roots()?,
            name_server: self.name_server,
        })
    }

    /// Authorities that are trusted besides the public ones.
    pub(crate) fn read_roots(&self) -> Result<Vec<CertificateDer<'static>>> {
        let Some(path) = &self.roots else { return Ok(Vec::new()) };
        let refuse = |reason: String| Error::Roots { path: path.clone(), reason };
        let pem = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
        let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        match roots {
            Ok(roots) if roots.is_empty() => Err(refuse("there is none in it".to_owned())),
            Ok(roots) => Ok(roots),
            Err(error) => Err(refuse(error.to_string())),
        }
    }
}
