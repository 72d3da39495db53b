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

    /// Whether a key has another type. Before Redis 7 the error of a script wraps the error of the command.
    #[must_use]
    pub fn is_wrong_type(&self) -> bool {
        matches!(self, Self::Refused { code, detail }
            if code == "WRONGTYPE" || (code == "ERR" && detail.contains("WRONGTYPE ")))
    }

    /// Whether the store handle reports it as a state of the whole server: in the log once per change, in
    /// [`Health::degraded`](crate::Health::degraded) and in metrics. A caller need not log it.
    #[must_use]
    pub fn is_reported(&self) -> bool {
        crate::Fault::of(self).is_some()
    }

    /// Splits an error reply of the store into its code and the rest.
    pub(crate) fn from_server(error: &redis::ServerError) -> Self {
        Self::Refused {
            code: error.code().to_owned(),
            detail: error.details().unwrap_or_default().to_owned(),
        }
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

    /// Whether the server refused to write because it is a replica. Before Redis 7 the error of a
    /// script wraps the error of its first write, so the text is searched too; nothing was written before it.
    pub(crate) fn is_readonly(&self) -> bool {
        matches!(self, Self::Refused { code, detail }
            if code == "READONLY" || (code == "ERR" && detail.contains("-READONLY ")))
    }

    /// Whether the server refused temporarily, without running the call.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Refused { code, .. }
            if matches!(code.as_str(), "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &str, detail: &str) -> Error {
        Error::Refused { code: code.into(), detail: detail.into() }
    }

    #[test]
    fn readonly_error_is_recognised_from_old_and_new_servers() {
        assert!(refused("READONLY", "You can't write against a read only replica.").is_readonly());
        let old = "Error running script (call to f_1): @user_script:1: -READONLY You can't write";
        assert!(refused("ERR", old).is_readonly());
        assert!(!refused("ERR", "unknown command 'READONLY2'").is_readonly());
    }

    #[test]
    fn wrongtype_error_is_recognised_from_old_and_new_servers() {
        assert!(
            refused("WRONGTYPE", "Operation against a key holding the wrong kind of value").is_wrong_type()
        );
        let old = "Error running script (call to f_1): @user_script:1: WRONGTYPE Operation against a key";
        assert!(refused("ERR", old).is_wrong_type());
        assert!(!refused("ERR", "value is not an integer or out of range").is_wrong_type());
    }

    #[test]
    fn only_an_unanswered_call_may_have_been_executed() {
        assert!(!Error::interrupted("gone").did_not_happen());
        assert!(Error::Unavailable { waited: Duration::ZERO, reason: String::new() }.did_not_happen());
        assert!(refused("LOADING", "").did_not_happen());
    }
}
