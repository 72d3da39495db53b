//! What is asked of a target, and what was seen: the seam between the schedule and the probes.

mod observation;
mod spec;

use std::fmt;
use std::str::FromStr;

use hob_service::config::SecretName;
use serde::{Deserialize, Serialize};
use url::{Host, Url};
use utoipa::ToSchema;

pub use observation::{AssertionResult, CheckOutcome, Failure, FailureClass, Observation, Phases};
pub use spec::{AuthSpec, CheckSpec, DnsSpec, HeartbeatSpec, HttpSpec};

/// A check whose every part has been looked at.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    Http(HttpCheck),
    /// A connection is accepted.
    Tcp(Endpoint),
    Dns(DnsCheck),
    /// The certificate that a TLS server shows: whether it is good, and for how long.
    Certificate(Endpoint),
    /// Nothing is asked: a job calls us, and its silence is the failure.
    Heartbeat(Heartbeat),
}

/// The kinds of checks, by the names that users write.
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
    /// How many redirects are followed; the one after is a failure. 0 takes a redirect as the answer.
    pub redirects: u8,
    pub auth: Option<Auth>,
    pub version: HttpVersion,
}

/// Which HTTP is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum HttpVersion {
    /// The server chooses in the TLS handshake; plain connections speak HTTP/1.1.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    #[serde(rename = "1.1")]
    Http1,
    #[serde(rename = "2")]
    Http2,
}

/// Who the check says it is. The secret itself is read when the check runs, and is never kept.
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
    /// Every one of these must be among the answers; none asks only that there is an answer.
    pub expected: Vec<String>,
    /// Whom to ask; otherwise the system's resolvers.
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

/// When a job is expected to call: within the monitor's interval, or by a cron pattern in UTC.
#[derive(Clone, Debug, PartialEq)]
pub struct Heartbeat {
    pub cron: Option<croner::Cron>,
    /// How late it may be.
    pub grace_s: u32,
}

/// What is wrong with one field of what somebody wrote.
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

impl MonitorKind {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Tcp => "tcp",
            Self::Dns => "dns",
            Self::Certificate => "certificate",
            Self::Heartbeat => "heartbeat",
        }
    }
}

impl fmt::Display for MonitorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl FromStr for Endpoint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((host, port)) = text.rsplit_once(':') else {
            return Err("needs a host and a port, as in db.example:5432 or [::1]:5432");
        };
        let Ok(port @ 1..) = port.parse() else { return Err("has a port that is none") };
        let host = Host::parse(host).map_err(|_| "has a host that is none")?;
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
