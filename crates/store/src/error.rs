//! Errors of the store, distinguished by what the caller may do next.

use std::time::Duration;

/// Why a call could not be answered. A refusal by a primitive (a limit reached, a lease held) is a value, not an error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The address is invalid. Never contains the password.
    #[error("invalid store address: {0}")]
    Address(String),
    /// The TLS files could not be read or are invalid.
    #[error("invalid TLS settings for Redis: {0}")]
    Tls(String),
    /// No connection within the deadline, or the embedded engine was busy with a script. Nothing was sent: the call
    /// was not executed.
    #[error("no connection to the store after {waited:?}: {reason}")]
    Unavailable {
        /// How long the call waited for a connection.
        waited: Duration,
        /// The error of the last attempt to connect, or what the engine was busy with.
        reason: String,
    },
    /// The call was sent, but there was no answer: it may or may not have been executed. Only an idempotent call may be
    /// repeated.
    #[error("no answer from the store ({reason}); the call may or may not have been executed")]
    Interrupted {
        /// The deadline that passed, or why the connection ended.
        reason: String,
    },
    /// The store answered with an error reply.
    #[error("store error: {code} {detail}")]
    Refused {
        /// The first word of the error reply, such as `WRONGTYPE`.
        code: String,
        /// The rest of the error reply.
        detail: String,
    },
    /// The answer does not have the expected type.
    #[error("unexpected reply from the store: {0}")]
    Reply(String),
    /// A call that a Cluster client cannot route: it has no key, or it must run on every master.
    #[error("{command} cannot be routed in a cluster: {reason}")]
    Unroutable {
        /// The command's name.
        command: String,
        /// What to do instead.
        reason: &'static str,
    },
    /// Invalid arguments of a primitive, such as a rate limit of 0.
    #[error("{0}")]
    Misuse(String),
}

/// The result of a call to the store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Whether the call was certainly not executed, so that it can be repeated.
    #[must_use]
    pub fn did_not_happen(&self) -> bool {
        !matches!(self, Self::Interrupted { .. } | Self::Reply(_))
    }

    /// Whether a key has another type.
    #[must_use]
    pub fn is_wrong_type(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "WRONGTYPE")
    }

    /// Whether the store handle reports it as a state of the whole server: in the log once per change, in
    /// [`Health::degraded`](crate::Health::degraded) and in metrics. A caller need not log it.
    #[must_use]
    pub fn is_reported(&self) -> bool {
        crate::Fault::of(self).is_some()
    }

    /// Splits an error reply of the store into its code and the rest.
    pub(crate) fn from_server(error: &redis::ServerError) -> Self {
        let (code, detail) = (error.code(), error.details().unwrap_or_default());
        let (code, detail) = command_in_script(code, detail).unwrap_or((code, detail));
        Self::Refused { code: code.to_owned(), detail: detail.to_owned() }
    }

    #[allow(clippy::needless_pass_by_value, reason = "made for `map_err`")]
    pub(crate) fn interrupted(reason: impl ToString) -> Self {
        Self::Interrupted { reason: reason.to_string() }
    }

    #[allow(clippy::needless_pass_by_value, reason = "made for `map_err`")]
    pub(crate) fn reply(reason: impl ToString) -> Self {
        Self::Reply(reason.to_string())
    }

    /// Whether the server does not have the script.
    pub(crate) fn is_noscript(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "NOSCRIPT")
    }

    /// Whether the server refused to write because it is a replica. A script is refused at its first write, so nothing was
    /// written before.
    pub(crate) fn is_readonly(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "READONLY")
    }

    /// Whether the server refused temporarily, without running the call.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Refused { code, .. }
            if matches!(code.as_str(), "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN"))
    }
}

/// The code and the text of a command's error that a script did not catch. Before Redis 7 the error of the script wraps it:
/// `ERR Error running script (call to f_SHA): @user_script:1: WRONGTYPE Operation against …`.
fn command_in_script<'a>(code: &str, detail: &'a str) -> Option<(&'a str, &'a str)> {
    if code != "ERR" || !detail.starts_with("Error running script") {
        return None;
    }
    let (_, position) = detail.split_once("@user_script:")?;
    let (_, error) = position.trim_start().split_once(": ")?;
    // Errors of the server itself, such as READONLY, keep the first character of the protocol.
    let (code, text) = error.strip_prefix('-').unwrap_or(error).split_once(' ')?;
    (code.len() > 1 && code.bytes().all(|byte| byte.is_ascii_uppercase())).then_some((code, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &str, detail: &str) -> Error {
        Error::Refused { code: code.into(), detail: detail.into() }
    }

    #[test]
    fn error_of_a_command_is_found_in_the_error_of_a_script() {
        let found = |detail| command_in_script("ERR", detail);
        assert_eq!(
            found("Error running script (call to f_1): @user_script:1: WRONGTYPE Operation against a key"),
            Some(("WRONGTYPE", "Operation against a key"))
        );
        assert_eq!(
            found("Error running script (call to f_1): @user_script: 12: -READONLY You can't write"),
            Some(("READONLY", "You can't write"))
        );
        assert_eq!(
            found("Error running script (call to f_1): @user_script:3: attempt to index a nil value"),
            None
        );
        assert_eq!(found("unknown command 'OOM'"), None);
        assert_eq!(command_in_script("OOM", "Error running script: @user_script:1: WRONGTYPE x"), None);
    }

    #[test]
    fn only_an_unanswered_call_may_have_been_executed() {
        assert!(!Error::interrupted("gone").did_not_happen());
        assert!(Error::Unavailable { waited: Duration::ZERO, reason: String::new() }.did_not_happen());
        assert!(refused("LOADING", "").did_not_happen());
    }
}
