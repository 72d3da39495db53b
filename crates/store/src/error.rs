//! What can go wrong between a caller and its store, told apart by what the caller may do next.

use std::time::Duration;

/// Why a call could not be answered. A refusal by a primitive (a limit reached, a lease held) is not an
/// error but a value of its own.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The address could not be understood. Never holds the password.
    #[error("bad the store address: {0}")]
    Address(String),
    /// TLS material could not be read or is not usable.
    #[error("TLS for the store: {0}")]
    Tls(String),
    /// No connection within the deadline, or the embedded store was busy with a script. Nothing was sent: the call
    /// certainly did not happen.
    #[error("the store unavailable for {waited:?} ({reason})")]
    Unavailable {
        /// How long the call waited for a connection.
        waited: Duration,
        /// What the last attempt to connect said, or what the store was busy with.
        reason: String,
    },
    /// The call was handed to a connection and no answer came: it may or may not have happened. Only a
    /// caller that knows its call to be idempotent may repeat it.
    #[error("the store gave no answer ({reason}); the call may have happened")]
    Interrupted {
        /// The deadline that passed, or what the connection died of.
        reason: String,
    },
    /// The store answered with an error of its own.
    #[error("the store refused: {code} {detail}")]
    Refused {
        /// The first word of the error reply, such as `WRONGTYPE`.
        code: String,
        /// The rest of the error reply.
        detail: String,
    },
    /// The answer has not the shape that the caller asked for.
    #[error("unexpected reply from the store: {0}")]
    Reply(String),
    /// A call that a Cluster cannot run as it stands: its keys lie in several slots, or it concerns every
    /// master.
    #[error("{command} cannot be routed in a cluster: {reason}")]
    Unroutable {
        /// The command's name.
        command: String,
        /// What to do instead.
        reason: &'static str,
    },
    /// A primitive was asked for something that no store could do, such as a limit of nothing per second.
    #[error("{0}")]
    Misuse(String),
}

/// The result of a call to the store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Whether the call certainly had no effect, so that repeating it is safe.
    #[must_use]
    pub fn did_not_happen(&self) -> bool {
        !matches!(self, Self::Interrupted { .. } | Self::Reply(_))
    }

    /// Whether a key that was asked for is of another type. Before Redis 7 a script wraps the words of the command that
    /// failed.
    #[must_use]
    pub fn is_wrong_type(&self) -> bool {
        matches!(self, Self::Refused { code, detail }
            if code == "WRONGTYPE" || (code == "ERR" && detail.contains("WRONGTYPE ")))
    }

    /// An error reply of the store, split as Redis writes it.
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

    /// Whether a script is unknown to the server that was asked.
    pub(crate) fn is_noscript(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "NOSCRIPT")
    }

    /// Whether the server refused to write because it is a replica. Before Redis 7 a script wraps the
    /// words of the write that it tried first, so the text is searched as well; nothing was written
    /// before it.
    pub(crate) fn is_readonly(&self) -> bool {
        matches!(self, Self::Refused { code, detail }
            if code == "READONLY" || (code == "ERR" && detail.contains("-READONLY ")))
    }

    /// Whether the server refused for a moment only and did nothing.
    pub(crate) fn is_passing(&self) -> bool {
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
    fn a_replica_is_recognised_in_the_words_of_old_and_new_servers() {
        assert!(refused("READONLY", "You can't write against a read only replica.").is_readonly());
        let old = "Error running script (call to f_1): @user_script:1: -READONLY You can't write";
        assert!(refused("ERR", old).is_readonly());
        assert!(!refused("ERR", "unknown command 'READONLY2'").is_readonly());
    }

    #[test]
    fn a_wrong_type_is_recognised_in_the_words_of_old_and_new_servers() {
        assert!(
            refused("WRONGTYPE", "Operation against a key holding the wrong kind of value").is_wrong_type()
        );
        let old = "Error running script (call to f_1): @user_script:1: WRONGTYPE Operation against a key";
        assert!(refused("ERR", old).is_wrong_type());
        assert!(!refused("ERR", "value is not an integer or out of range").is_wrong_type());
    }

    #[test]
    fn only_an_unanswered_call_may_have_happened() {
        assert!(!Error::interrupted("gone").did_not_happen());
        assert!(Error::Unavailable { waited: Duration::ZERO, reason: String::new() }.did_not_happen());
        assert!(refused("LOADING", "").did_not_happen());
    }
}
