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

/// The error of `stored.lua`.
const FOREIGN_VALUE: &str = "foreign value";

/// The error of `marker.lua` for a marker whose counter another client has set too high.
const NO_FENCE_LEFT: &str = "no fence left";

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

    /// Whether a key holds something that another client wrote: another type, or a value that is not a number where a
    /// command or a script needs one. Hob's own scripts fail for no other reason.
    #[must_use]
    pub fn is_foreign_value(&self) -> bool {
        /// Parts of the messages of Redis and Lua.
        const MESSAGES: [&str; 9] = [
            FOREIGN_VALUE,
            "not an integer",
            "not a valid float",
            "not a float",
            "would overflow",
            "would produce NaN",
            "bad argument #",
            "attempt to ",
            NO_FENCE_LEFT,
        ];
        let is_value = || {
            matches!(self, Self::Refused { code, detail }
            if code == "ERR" && MESSAGES.iter().any(|message| detail.contains(message)))
        };
        self.is_wrong_type() || is_value() && crate::Fault::of(self).is_none()
    }

    /// The key that `stored.lua` found to have a foreign value. Redis may append the position in the script.
    pub(crate) fn foreign_key(&self) -> Option<&str> {
        let Self::Refused { detail, .. } = self else { return None };
        let (_, rest) = detail.split_once(FOREIGN_VALUE)?;
        rest.strip_prefix(": ")?.split(' ').next().filter(|key| !key.is_empty())
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
    fn foreign_value_is_recognised_from_old_and_new_servers() {
        for detail in [
            "value is not an integer or out of range",
            "hash value is not an integer script: 5f, on @user_script:1.",
            "user_script:3: attempt to compare number with nil script: 5f, on @user_script:3.",
            "Error running script (call to f_5f): @user_script:3: user_script:3: attempt to perform arithmetic on a nil value",
            "user_script:1: bad argument #1 to 'max' (number expected, got nil)",
        ] {
            assert!(refused("ERR", detail).is_foreign_value(), "{detail}");
        }
        assert!(refused("WRONGTYPE", "Operation against a key").is_foreign_value());
        for (code, detail) in [
            (
                "ERR",
                "Error running script (call to f_5f): @user_script:3: -OOM command not allowed; attempt to write",
            ),
            ("ERR", "Script killed by user with SCRIPT KILL..."),
            ("ERR", "Script attempted to access a non local key in a cluster node"),
            ("NOPERM", "this user has no permissions"),
        ] {
            assert!(!refused(code, detail).is_foreign_value(), "{detail}");
        }
    }

    #[test]
    fn error_about_a_value_may_name_its_key() {
        let named = |detail| refused("ERR", detail).foreign_key().map(str::to_owned);
        let new = "user_script:3: foreign value: load:1:writer script: 5f, on @user_script:3.";
        let old = "Error running script (call to f_5f): @user_script:3: user_script:3: foreign value: load:1:writer";
        assert_eq!(named(new).as_deref(), Some("load:1:writer"));
        assert_eq!(named(old).as_deref(), Some("load:1:writer"));
        assert_eq!(named("user_script:3: foreign value:  script: 5f, on @user_script:3."), None);
        assert_eq!(named("value is not an integer or out of range"), None);
    }

    #[test]
    fn only_an_unanswered_call_may_have_been_executed() {
        assert!(!Error::interrupted("gone").did_not_happen());
        assert!(Error::Unavailable { waited: Duration::ZERO, reason: String::new() }.did_not_happen());
        assert!(refused("LOADING", "").did_not_happen());
    }
}
