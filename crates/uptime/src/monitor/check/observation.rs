//! What a probe observed.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use utoipa::ToSchema;

/// One run of a check.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    pub started_at: SystemTime,
    pub phases: Phases,
    pub outcome: CheckOutcome,
    pub certificate: Option<CertificateExpiry>,
    /// The address of the last connection.
    pub address: Option<SocketAddr>,
    /// In the order of the monitor's assertions. If one does not hold, the check has failed.
    pub assertions: Vec<AssertionResult>,
}

/// How long each phase took; `None` if the check did not get there. After redirects these are the phases of the last
/// request, except for `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    pub dns: Option<Duration>,
    pub connect: Option<Duration>,
    pub tls: Option<Duration>,
    pub first_byte: Option<Duration>,
    pub total: Option<Duration>,
}

/// When the certificate of a server expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateExpiry {
    pub unix_s: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// `status_code` is 0 if the protocol has none.
    Ok {
        status_code: u16,
    },
    Failed(Failure),
}

/// Why a check failed. The message is short and never contains a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub class: FailureClass,
    /// If the target sent one.
    pub status_code: Option<u16>,
    message: String,
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = CheckFailureClass)]
pub enum FailureClass {
    /// The name could not be resolved.
    Name,
    /// No address accepted a connection.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The check did not finish in time.
    Timeout,
    /// The connection was closed or reset before the response was complete.
    Closed,
    /// The response was malformed, or larger than allowed.
    Protocol,
    /// More redirects than allowed, or a redirect to an invalid URL.
    Redirect,
    /// An assertion does not hold.
    Assertion,
    /// The configuration does not allow the target.
    Forbidden,
    /// The check cannot run, for example because a secret is missing.
    Misconfigured,
    /// A job did not call in time.
    Silent,
    /// A job called to say that it failed.
    Reported,
}

/// The result of one assertion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssertionResult {
    /// As it was written.
    pub text: String,
    pub holds: bool,
    /// What was found, shortened.
    pub found: String,
}

impl CertificateExpiry {
    /// Whole days from now; negative if it has expired.
    #[must_use]
    pub fn days_left(self) -> i64 {
        let now_s = hob_units::unix_time().as_secs().cast_signed();
        (self.unix_s - now_s).div_euclid(86_400)
    }
}

impl Observation {
    /// A check that failed before it connected.
    #[must_use]
    pub fn failed(class: FailureClass, message: impl Into<String>) -> Self {
        Self {
            started_at: SystemTime::now(),
            phases: Phases::default(),
            outcome: CheckOutcome::Failed(Failure::new(class, message)),
            certificate: None,
            address: None,
            assertions: Vec::new(),
        }
    }

    #[must_use]
    pub fn is_ok(&self) -> bool {
        matches!(self.outcome, CheckOutcome::Ok { .. })
    }
}

impl Failure {
    /// The longest message, in bytes.
    pub const MAX_MESSAGE_BYTES: usize = 200;

    /// Control characters in the message are replaced, and it is cut to [`Failure::MAX_MESSAGE_BYTES`].
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        let mut message: String = message.into();
        if message.contains(char::is_control) {
            message = message.replace(char::is_control, " ");
        }
        if message.len() > Self::MAX_MESSAGE_BYTES {
            let end = message.floor_char_boundary(Self::MAX_MESSAGE_BYTES - '…'.len_utf8());
            message.truncate(end);
            message.push('…');
        }
        Self { class, status_code: None, message }
    }

    #[must_use]
    pub fn with_status(mut self, status_code: u16) -> Self {
        self.status_code = Some(status_code);
        self
    }

    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

// As the database, metrics and alerts name it.
hob_units::names!(FailureClass {
    Name = "name",
    Connect = "connect",
    Tls = "tls",
    Timeout = "timeout",
    Closed = "closed",
    Protocol = "protocol",
    Redirect = "redirect",
    Assertion = "assertion",
    Forbidden = "forbidden",
    Misconfigured = "misconfigured",
    Silent = "silent",
    Reported = "reported",
});

impl FailureClass {
    /// Whether a retry may succeed.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        !matches!(self, Self::Forbidden | Self::Misconfigured | Self::Silent | Self::Reported)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_cut_between_characters_and_has_one_line() {
        let failure = Failure::new(FailureClass::Protocol, format!("a\r\nb {}", "é".repeat(200)));
        assert!(failure.message().len() <= Failure::MAX_MESSAGE_BYTES);
        assert!(failure.message().starts_with("a  b é") && failure.message().ends_with('…'));
    }
}
