//! What a probe saw.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

/// One run of a check.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    pub started_at: SystemTime,
    pub phases: Phases,
    pub outcome: CheckOutcome,
    /// Days until the shown certificate ends; negative if it has.
    pub certificate_days: Option<i64>,
    /// Who answered, after the last redirect.
    pub address: Option<SocketAddr>,
    /// In the order of the monitor's assertions. Any that does not hold makes the outcome a failure.
    pub assertions: Vec<AssertionResult>,
}

/// How long each part took; absent where the check did not come to it. After redirects, those of the last request,
/// but for `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    pub dns: Option<Duration>,
    pub connect: Option<Duration>,
    pub tls: Option<Duration>,
    pub first_byte: Option<Duration>,
    pub total: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// `status_code` is 0 where the protocol has none.
    Ok {
        status_code: u16,
    },
    Failed(Failure),
}

/// Why a check failed. The message is short, for people, and never holds a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub class: FailureClass,
    /// Where the target answered with one.
    pub status_code: Option<u16>,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// The name has no address, or nobody said.
    Name,
    /// No connection.
    Connect,
    /// The connection was not secure.
    Tls,
    /// No answer in time.
    Timeout,
    /// The connection was closed or reset in the middle.
    Closed,
    /// The answer was not of the protocol, or larger than allowed.
    Protocol,
    /// More redirects than allowed, or to nowhere.
    Redirect,
    /// The answer was not what the assertions ask for.
    Assertion,
    /// The configuration does not let us look there.
    Forbidden,
    /// The monitor cannot be run as it is: a secret that is not there, say.
    Misconfigured,
    /// A job did not call in time.
    Silent,
    /// A job called to say that it failed.
    Reported,
}

/// What one assertion came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssertionResult {
    /// As it was written.
    pub text: String,
    pub holds: bool,
    /// What was there instead, shortened.
    pub found: String,
}

impl Observation {
    /// Something that could not even be begun.
    #[must_use]
    pub fn failed(class: FailureClass, message: impl Into<String>) -> Self {
        Self {
            started_at: SystemTime::now(),
            phases: Phases::default(),
            outcome: CheckOutcome::Failed(Failure::new(class, message)),
            certificate_days: None,
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
    /// Most bytes of a message.
    pub const MAX_MESSAGE_BYTES: usize = 200;

    /// A failure whose message is cut to [`Failure::MAX_MESSAGE_BYTES`] and has no control characters.
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

impl FailureClass {
    /// Whether the same check may go well a moment later. What a person has to mend is not retried.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        !matches!(self, Self::Forbidden | Self::Misconfigured | Self::Silent | Self::Reported)
    }

    /// A word for records, metrics and alerts.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Protocol => "protocol",
            Self::Redirect => "redirect",
            Self::Assertion => "assertion",
            Self::Forbidden => "forbidden",
            Self::Misconfigured => "misconfigured",
            Self::Silent => "silent",
            Self::Reported => "reported",
        }
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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
    fn a_message_is_cut_between_characters_and_stays_on_one_line() {
        let failure = Failure::new(FailureClass::Protocol, format!("a\r\nb {}", "é".repeat(200)));
        assert!(failure.message().len() <= Failure::MAX_MESSAGE_BYTES);
        assert!(failure.message().starts_with("a  b é") && failure.message().ends_with('…'));
    }
}
