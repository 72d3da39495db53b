//! The `[server]` section of `hob.toml`.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use hob_net::{ForwardingHeader, Network, ServerTls, TrustedProxies};
use hob_service::config::{Mistakes, Secret, check_host};
use hob_service::{Period, SecretRef};

use crate::Error;
use crate::server::listener::certificate;

/// The source of the admin token if the configuration does not set one.
const ADMIN_VARIABLE: &str = "HOB_ADMIN_TOKEN";

/// The minimum length of an admin token, so that it cannot be guessed.
pub(crate) const MIN_ADMIN_TOKEN_CHARS: usize = 24;
/// The minimum number of different characters in an admin token. Only one in a million tokens of 24 random hexadecimal
/// digits has fewer.
const MIN_DIFFERENT_CHARS: usize = 7;

hob_service::section! {
    /// The HTTP server of the API and the console: address, access, limits.
    pub struct Config("server") {
        /// The address to listen on. Any address other than loopback requires an admin token.
        pub listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 7070)),
        /// Host names that browsers may use for this server, besides localhost and IP addresses.
        pub hosts: Vec<String> = Vec::new(),
        /// The token with full access, as env:NAME or file:PATH. Default: env:HOB_ADMIN_TOKEN. At least 24 random
        /// characters. Without a token, everyone on this machine has full access, and requests that a proxy has forwarded
        /// are refused.
        pub admin_token: Option<SecretRef> = None,
        /// The networks and addresses of proxies in front of the server. Their forwarding headers are trusted for the
        /// address of the client, and for whether it uses HTTPS.
        pub trusted_proxies: Vec<Network> = Vec::new(),
        /// The forwarding header of these proxies: "x_forwarded_for" (with X-Forwarded-Proto) or "forwarded".
        pub forwarded_header: ForwardingHeader = ForwardingHeader::XForwardedFor,
        /// The file with the certificate chain (PEM). Enables TLS.
        pub tls_certificate: Option<PathBuf> = None,
        /// The file with the private key of the certificate (PEM).
        pub tls_key: Option<PathBuf> = None,
        /// The maximum number of concurrent connections. Further connections wait to be accepted.
        pub max_connections: u32 = 20_000 => 1..,
        /// The maximum number of concurrent requests. Further requests get status 503.
        pub max_requests: u32 = 1_024 => 1..,
        /// The largest request body, in KiB. Some routes accept more.
        pub max_body_kib: u32 = 1_024 => 1..,
        /// How long a client may take to send the request headers.
        pub header_timeout: Period = Period::from_secs(10) => Period::from_millis(1)..,
        /// How long a request may take until its response starts.
        pub request_timeout: Period = Period::from_secs(30) => Period::from_millis(1)..,
        /// How long a client may stop reading before the connection is closed.
        pub write_timeout: Period = Period::from_secs(30) => Period::from_millis(1)..,
        /// How long running requests may take to finish after the server starts to shut down.
        pub drain_timeout: Period = Period::from_secs(10),
        /// How long a console session lasts.
        pub session_ttl: Period = Period::from_secs(12 * 3_600) => Period::from_secs(1)..,
        /// How long entries of the audit log are kept.
        pub keep_audit_log: Period = Period::from_days(90) => Period::from_secs(1)..,
    }
    check check;
    check_files check_files;
}

fn check(config: &Config, mistakes: &mut Mistakes) {
    mistakes.check_each("hosts", &config.hosts, |host| check_host(host));
    mistakes.check_tls_pair(config.tls_certificate.as_ref(), config.tls_key.as_ref());
}

fn check_files(config: &Config, mistakes: &mut Mistakes) {
    if let Ok(Some(files)) = certificate(config) {
        mistakes.check("tls_certificate", ServerTls::read(files));
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
            Some(secret) if !is_strong(secret.reveal()) => Err(Error::WeakAdminToken),
            _ => Ok(admin),
        }
    }

    /// The proxies in front.
    pub(crate) fn trusted_proxies(&self) -> TrustedProxies {
        let networks = self.trusted_proxies.iter().map(|network| (*network).into()).collect();
        TrustedProxies { networks, header: self.forwarded_header }
    }
}

/// Whether a token is long enough and does not just repeat a short text.
fn is_strong(token: &str) -> bool {
    let chars: Vec<char> = token.chars().collect();
    let different: HashSet<char> = chars.iter().copied().collect();
    let repeats = |period: usize| chars.iter().zip(chars.iter().skip(period)).all(|(a, b)| a == b);
    chars.len() >= MIN_ADMIN_TOKEN_CHARS
        && different.len() >= MIN_DIFFERENT_CHARS
        && !(1..=chars.len() / 2).any(repeats)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_token_is_long_and_not_repetitive() {
        for strong in [
            "3f1c9a7be02d4856afc1d09b",
            "correct horse battery staple",
            "hob_Qm9yZWQtZW5vdWdoLXRvLXJlYWQtdGhpcz8",
            "ſehr geheime Zeichenfolge",
        ] {
            assert!(is_strong(strong), "{strong}");
        }
        for weak in [
            "",
            "an unguessable token",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "1212121212121212121212121212",
            "abcabcabcabcabcabcabcabcabc",
            "secret12secret12secret12secret12",
            "secret12secret12secret12secr",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaabc",
        ] {
            assert!(!is_strong(weak), "{weak}");
        }
    }
}
