//! The `[uptime]` section of `hob.toml`.

use std::net::SocketAddr;
use std::path::PathBuf;

use hob_net::Outbound;
use hob_service::config::{Mistakes, check_host_and_port};
use hob_service::{Period, SecretRef};
use lettre::message::Mailbox;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::error::{Error, Result};
use crate::probe::Limits;
use crate::status::page;

hob_service::section! {
    /// Uptime: checks, incidents, alerts, the status page.
    pub struct Config("uptime") {
        /// Checks that this node runs at the same time. 0: this node runs no checks, and only serves the API and the pages.
        pub concurrency: u32 = 512,
        /// How long after its timeout a check may still be recorded. After that another worker claims the monitor.
        pub grace: Period = Period::from_secs(5) => Period::from_millis(100)..,
        /// How long single results are kept.
        pub keep_results: Period = Period::from_days(7) => Period::from_secs(1)..,
        /// How long hourly summaries are kept.
        pub keep_hours: Period = Period::from_days(100) => Period::from_secs(1)..,
        /// How long daily summaries, resolved incidents and finished alert deliveries are kept.
        pub keep_days: Period = Period::from_days(730) => Period::from_secs(1)..,
        /// `host:port` addresses that tell whether this node's own network works. While none of them accepts a
        /// connection, failed checks of this node do not count, except those of targets on loopback. If empty, the node only
        /// checks for a route.
        pub connectivity_targets: Vec<String> = Vec::new(),
        /// Title of the public status page.
        pub status_title: String = "Status".to_owned(),
        /// Logo of the public status page: the URL of an image, or the image as a `data:` URL of at most 32 KiB.
        pub status_logo: String = String::new(),
        /// Colour of links and buttons on the public status page, such as `#0a5cc2`.
        pub status_accent: String = String::new(),
        /// A check fails if the response body is larger.
        pub max_body_kib: u32 = 1024 => 1..,
        /// A PEM file of certificate authorities that are trusted besides the public ones. Read again on SIGHUP.
        pub ca_file: Option<PathBuf> = None,
        /// `address:port` of the name server. Default: the name servers of the system.
        pub name_server: Option<SocketAddr> = None,
        /// Where to read the URL of the mail server from, since it contains a password: `env:NAME` or `file:PATH`. The
        /// URL is `smtps://user:password@host` or `smtp://host?tls=required`.
        pub smtp: Option<SecretRef> = None,
        /// Sender of alerts by e-mail.
        pub mail_from: String = "Hob <hob@localhost>".to_owned(),
        /// Attempts to deliver an alert.
        pub alert_attempts: u32 = 10 => 1..,
        /// Pause after the first failed attempt. It doubles with every attempt, up to half an hour.
        pub alert_backoff: Period = Period::from_secs(10) => Period::from_millis(1)..,
        /// Timeout of an attempt.
        pub alert_timeout: Period = Period::from_secs(10) => Period::from_millis(1)..,
    }
    check check;
    check_files check_files;
}

fn check(config: &Config, mistakes: &mut Mistakes) {
    mistakes.check_each("connectivity_targets", &config.connectivity_targets, |target| {
        check_host_and_port(target)
    });
    mistakes.check("status_logo", page::check_logo(&config.status_logo));
    mistakes.check("status_accent", page::check_accent(&config.status_accent));
    if config.name_server.is_some_and(|address| address.port() == 0) {
        mistakes.add("name_server", "the port must not be 0; name servers use 53");
    }
    if config.mail_from.parse::<Mailbox>().is_err() {
        mistakes.add("mail_from", format!("{:?} is not an e-mail address", config.mail_from));
    }
}

fn check_files(config: &Config, mistakes: &mut Mistakes) {
    mistakes.check("ca_file", config.read_roots());
    if let Some(smtp) = &config.smtp {
        mistakes.check("smtp", smtp.read());
    }
}

impl Config {
    /// Limits of checks.
    pub fn limits(&self, outbound: &Outbound) -> Result<Limits> {
        Ok(Limits {
            outbound: outbound.clone(),
            max_body_bytes: self.max_body_kib as usize * 1024,
            roots: self.read_roots()?,
            name_server: self.name_server,
        })
    }

    /// Certificate authorities that are trusted besides the public ones.
    pub(crate) fn read_roots(&self) -> Result<Vec<CertificateDer<'static>>> {
        let Some(path) = &self.ca_file else { return Ok(Vec::new()) };
        let refuse = |reason: String| Error::Roots { path: path.clone(), reason };
        let pem = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
        let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        match roots {
            Ok(roots) if roots.is_empty() => Err(refuse("the file contains no certificate".to_owned())),
            Ok(roots) => Ok(roots),
            Err(error) => Err(refuse(error.to_string())),
        }
    }
}
