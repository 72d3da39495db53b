//! Which systems are degraded because the store refuses their calls, and when they recover.
//!
//! A refusal that concerns the whole server, such as `OOM`, makes the system that made the call degraded; a task of the
//! store then probes the server. Reads and many scripts succeed on a full server, so a successful call does not prove a
//! recovery. The probe does: it is a write without an effect, on the key whose call was refused last. A system has
//! recovered when a probe passes and its calls have not been refused for a while.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hob_units::unix_ms;
use serde::Serialize;
use tokio::time::Instant;

use crate::error::Error;

/// Without refusals for this long and with a probe that passes, a system has recovered. Longer than the pause between
/// the attempts of background tasks, so that a server at the edge of its limit does not change the state every second.
const QUIET: Duration = Duration::from_secs(3);
/// The same for permissions: the probe may be permitted although the refused command is not.
const QUIET_PERMISSIONS: Duration = Duration::from_secs(30);

/// Why the store refuses calls. All of them concern the whole server or the user, not one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// `OOM`: the memory limit is reached.
    OutOfMemory,
    /// `READONLY`: the server is a replica.
    ReadOnly,
    /// `MISCONF`: the last snapshot could not be saved.
    NotPersisted,
    /// `NOREPLICAS`: fewer replicas are connected than the server requires.
    TooFewReplicas,
    /// `NOPERM`, `NOAUTH`, `WRONGPASS`: the user may not run a command or access a key.
    NotPermitted,
    /// `LOADING`, `MASTERDOWN`, `CLUSTERDOWN`, `TRYAGAIN`, until the deadline of a call.
    NotReady,
    /// `BUSY`: a script of another client has been running for too long.
    Busy,
}

const CODES: [(&str, Fault); 12] = [
    ("OOM", Fault::OutOfMemory),
    ("READONLY", Fault::ReadOnly),
    ("MISCONF", Fault::NotPersisted),
    ("NOREPLICAS", Fault::TooFewReplicas),
    ("NOPERM", Fault::NotPermitted),
    ("NOAUTH", Fault::NotPermitted),
    ("WRONGPASS", Fault::NotPermitted),
    ("LOADING", Fault::NotReady),
    ("MASTERDOWN", Fault::NotReady),
    ("CLUSTERDOWN", Fault::NotReady),
    ("TRYAGAIN", Fault::NotReady),
    ("BUSY", Fault::Busy),
];

impl Fault {
    /// The fault behind an error. Before Redis 7 the error of a script wraps the error of a command.
    #[must_use]
    pub fn of(error: &Error) -> Option<Self> {
        let Error::Refused { code, detail } = error else { return None };
        if code != "ERR" {
            return CODES.iter().find(|(name, _)| name == code).map(|(_, fault)| *fault);
        }
        let wrapped =
            |name: &str| detail.contains(&format!("-{name} ")) || detail.contains(&format!(": {name} "));
        let found = CODES.iter().find(|(name, _)| wrapped(name)).map(|(_, fault)| *fault);
        found.or(detail.contains("The user executing the script can't").then_some(Self::NotPermitted))
    }

    /// What is wrong, in a few words.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::OutOfMemory => "Redis is out of memory",
            Self::ReadOnly => "Redis is read-only",
            Self::NotPersisted => "Redis refuses writes because it cannot save its data to disk",
            Self::TooFewReplicas => "Redis refuses writes because it has too few replicas",
            Self::NotPermitted => "Redis does not permit a command or a key",
            Self::NotReady => "Redis is not ready",
            Self::Busy => "Redis is busy with a script",
        }
    }

    /// What an operator can do about it.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::OutOfMemory => {
                "Delete keys, or raise maxmemory; for the embedded engine, [redis] embedded_memory_mib."
            }
            Self::ReadOnly => "Connect to the master, or use a redis+sentinel:// address.",
            Self::NotPersisted => "See the log of the Redis server; its disk may be full.",
            Self::TooFewReplicas => "Start the replicas, or lower min-replicas-to-write.",
            Self::NotPermitted => {
                "See the log for the error, and `hob schema acl` for the permissions that Hob needs."
            }
            Self::NotReady => "Wait until Redis has loaded its data, or repair the cluster.",
            Self::Busy => "Wait, or stop the script with SCRIPT KILL.",
        }
    }

    fn quiet(self) -> Duration {
        if self == Self::NotPermitted { QUIET_PERMISSIONS } else { QUIET }
    }
}

/// A system whose calls the store refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Degradation {
    /// The name of the system.
    pub system: &'static str,
    /// Why calls are refused.
    pub fault: Fault,
    /// The first refusal, in Unix milliseconds.
    pub since_unix_ms: u64,
}

/// The state of one system.
pub(crate) struct System {
    name: &'static str,
    state: Mutex<State>,
    degraded: metrics::Gauge,
}

#[derive(Debug)]
enum State {
    Working,
    Degraded { fault: Fault, since_unix_ms: u64, refused_at: Instant, key: Option<Vec<u8>> },
}

/// Whether a refusal changed the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The system was working until now: a task must probe the server until it has recovered.
    First,
    Repeated,
}

impl System {
    pub(crate) fn new(name: &'static str) -> Arc<Self> {
        let degraded = metrics::gauge!("hob_store_degraded", "system" => name);
        degraded.set(0.0);
        Arc::new(Self { name, state: Mutex::new(State::Working), degraded })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Records a refused call on a key.
    pub(crate) fn refused(&self, fault: Fault, error: &Error, key: Option<Vec<u8>>) -> Refusal {
        let refused_at = Instant::now();
        let mut state = self.state();
        let (since_unix_ms, refusal) = match &*state {
            State::Working => (unix_ms(), Refusal::First),
            State::Degraded { since_unix_ms, .. } => (*since_unix_ms, Refusal::Repeated),
        };
        *state = State::Degraded { fault, since_unix_ms, refused_at, key };
        drop(state);
        if refusal == Refusal::First {
            self.degraded.set(1.0);
            tracing::warn!(system = self.name, %error, "store refuses the calls of this system");
        }
        refusal
    }

    /// The key of the last refused call.
    pub(crate) fn refused_key(&self) -> Option<Vec<u8>> {
        match &*self.state() {
            State::Degraded { key, .. } => key.clone(),
            State::Working => None,
        }
    }

    /// Records a probe that passed. Returns whether the system works again.
    pub(crate) fn probe_passed(&self, began: Instant) -> bool {
        let mut state = self.state();
        if let State::Degraded { fault, refused_at, .. } = &*state
            && began < *refused_at + fault.quiet()
        {
            return false;
        }
        *state = State::Working;
        drop(state);
        self.degraded.set(0.0);
        tracing::info!(system = self.name, "store accepts the calls of this system again");
        true
    }

    pub(crate) fn degradation(&self) -> Option<Degradation> {
        match &*self.state() {
            State::Degraded { fault, since_unix_ms, .. } => {
                Some(Degradation { system: self.name, fault: *fault, since_unix_ms: *since_unix_ms })
            }
            State::Working => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("System").field("name", &self.name).field("state", &self.state).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &str, detail: &str) -> Error {
        Error::Refused { code: code.into(), detail: detail.into() }
    }

    #[test]
    fn fault_is_recognised_from_old_and_new_servers() {
        let oom = "command not allowed when used memory > 'maxmemory'.";
        let old =
            "Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not allowed";
        let old_acl = "Error running script (call to f_1): @user_script: 1: The user executing the script can't run this \
                       command or subcommand";
        for (error, fault) in [
            (refused("OOM", oom), Some(Fault::OutOfMemory)),
            (refused("ERR", old), Some(Fault::OutOfMemory)),
            (refused("ERR", "Error running script: MISCONF Errors writing"), Some(Fault::NotPersisted)),
            (refused("ERR", old_acl), Some(Fault::NotPermitted)),
            (refused("NOPERM", "this user has no permissions"), Some(Fault::NotPermitted)),
            (refused("WRONGTYPE", "Operation against a key"), None),
            (refused("ERR", "unknown command 'OOM'"), None),
            (Error::interrupted("gone"), None),
        ] {
            assert_eq!(Fault::of(&error), fault, "{error}");
        }
    }

    #[test]
    fn system_recovers_when_a_probe_passes_after_a_quiet_time() {
        let system = System::new("garden");
        let error = refused("OOM", "");
        assert_eq!(system.degradation(), None);
        assert_eq!(system.refused(Fault::OutOfMemory, &error, Some(b"a".into())), Refusal::First);
        let first = system.degradation().expect("it is degraded");
        assert_eq!((first.system, first.fault), ("garden", Fault::OutOfMemory));
        assert_eq!(system.refused(Fault::ReadOnly, &error, Some(b"b".into())), Refusal::Repeated);
        assert_eq!(system.refused_key(), Some(b"b".into()));
        assert_eq!(system.degradation(), Some(Degradation { fault: Fault::ReadOnly, ..first }));
        assert!(!system.probe_passed(Instant::now()), "refused just now");
        assert!(system.probe_passed(Instant::now() + QUIET));
        assert_eq!(system.degradation(), None);
    }
}
