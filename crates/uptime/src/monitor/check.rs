//! Checks: what a probe does, and what it observed.

mod observation;
mod spec;

use std::fmt;
use std::str::FromStr;

use hickory_resolver::proto::rr::Name;
use hob_service::config::SecretName;
use serde::{Deserialize, Serialize};
use url::{Host, Url};
use utoipa::ToSchema;

use crate::monitor::assertion::Assertion;

pub use observation::{
    AssertionResult, CertificateExpiry, CheckOutcome, Failure, FailureClass, Observation, Phases,
};
pub use spec::{AuthSpec, CheckSpec, DnsSpec, HeartbeatSpec, HttpSpec};

/// A valid check.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    Http(HttpCheck),
    /// The target accepts a connection.
    Tcp(Endpoint),
    Dns(DnsCheck),
    /// The certificate of a TLS server is valid, and for how long.
    Certificate(Endpoint),
    /// A job calls this service; a missing call is a failure.
    Heartbeat(Heartbeat),
}

/// The kinds of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = MonitorKind)]
pub enum MonitorKind {
    Http,
    Tcp,
    Dns,
    Certificate,
    Heartbeat,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HttpCheck {
    pub method: http::Method,
    /// `http` or `https`, with a host, without credentials.
    pub url: Url,
    pub headers: Vec<(http::HeaderName, http::HeaderValue)>,
    pub body: Option<String>,
    /// Redirects that are followed; one more is a failure. With 0, a redirect is the response.
    pub redirects: u8,
    pub auth: Option<Auth>,
    pub version: HttpVersion,
}

/// The version of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum HttpVersion {
    /// The server chooses in the TLS handshake; HTTP/1.1 without TLS.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    #[serde(rename = "1.1")]
    Http1,
    #[serde(rename = "2")]
    Http2,
}

/// Credentials of a check. The secret is read when the check runs and is never stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    Basic { user: String, password: SecretName },
    Bearer { token: SecretName },
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub host: Host,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsCheck {
    pub name: String,
    pub record: RecordType,
    /// Each of these must be among the answers. If empty, any answer is good.
    pub expected: Vec<String>,
    /// The name server. Default: those of the system.
    pub server: Option<std::net::SocketAddr>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum RecordType {
    #[default]
    A,
    Aaaa,
    Cname,
    Mx,
    Ns,
    Txt,
}

/// When a job is expected to call: every interval of the monitor, or by a cron pattern in UTC.
#[derive(Clone, Debug, PartialEq)]
pub struct Heartbeat {
    pub cron: Option<croner::Cron>,
    /// How late it may be.
    pub grace_s: u32,
}

/// Why one field of a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldError {
    pub field: String,
    pub message: String,
}

impl Check {
    #[must_use]
    pub fn kind(&self) -> MonitorKind {
        match self {
            Self::Http(_) => MonitorKind::Http,
            Self::Tcp(_) => MonitorKind::Tcp,
            Self::Dns(_) => MonitorKind::Dns,
            Self::Certificate(_) => MonitorKind::Certificate,
            Self::Heartbeat(_) => MonitorKind::Heartbeat,
        }
    }

    /// The target as it was written; empty for a heartbeat.
    #[must_use]
    pub fn target(&self) -> String {
        match self {
            Self::Http(check) => check.url.to_string(),
            Self::Tcp(endpoint) | Self::Certificate(endpoint) => endpoint.to_string(),
            Self::Dns(check) => check.name.clone(),
            Self::Heartbeat(_) => String::new(),
        }
    }
}

impl Check {
    /// Why the check can never succeed: its target cannot be resolved, or an assertion is about something that a check of
    /// this kind does not see.
    #[must_use]
    pub fn impossible(&self, assertions: &[Assertion]) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (index, assertion) in assertions.iter().enumerate() {
            let kinds = assertion.kinds();
            if !kinds.contains(&self.kind()) {
                let message = format!("is only for monitors of kind {}", one_of(kinds));
                errors.push(FieldError::new(format!("assertions[{index}]"), message));
            }
        }
        if !self.has_valid_name() {
            errors.push(FieldError::new("target", "is not a domain name"));
        }
        errors
    }

    fn has_valid_name(&self) -> bool {
        match self {
            Self::Http(check) => match check.url.host() {
                Some(Host::Domain(name)) => has_labels(name),
                _ => true,
            },
            Self::Tcp(Endpoint { host: Host::Domain(name), .. })
            | Self::Certificate(Endpoint { host: Host::Domain(name), .. }) => has_labels(name),
            // The parser of the probe; it also accepts the root.
            Self::Dns(check) => {
                (check.name == "." || has_labels(&check.name)) && Name::from_utf8(&check.name).is_ok()
            }
            Self::Tcp(_) | Self::Certificate(_) | Self::Heartbeat(_) => true,
        }
    }
}

/// Whether the name consists of labels that are not empty. It may end with a dot.
fn has_labels(name: &str) -> bool {
    name.strip_suffix('.').unwrap_or(name).split('.').all(|label| !label.is_empty())
}

/// `http, tcp or dns`
fn one_of(kinds: &[MonitorKind]) -> String {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

hob_units::names!(MonitorKind {
    Http = "http",
    Tcp = "tcp",
    Dns = "dns",
    Certificate = "certificate",
    Heartbeat = "heartbeat",
});

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl FromStr for Endpoint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((host, port)) = text.rsplit_once(':') else {
            return Err("must be a host and a port, such as db.example:5432 or [::1]:5432");
        };
        let Ok(port @ 1..) = port.parse() else { return Err("has an invalid port") };
        let host = Host::parse(host).map_err(|_| "has an invalid host")?;
        Ok(Self { host, port })
    }
}

impl FieldError {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}
