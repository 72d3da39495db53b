//! How long a call may take, and how long it waits for a server that is known to be away.
//!
//! A lost connection is usually back within milliseconds, so the first calls wait for it until their deadline. Once an
//! attempt to connect has failed, the server is known to be away. Then calls fail after a short wait, because the
//! requests of users would otherwise take several deadlines each. The task that reconnects ends this state.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// How long a call waits for a server that is known to be away, unless its handle has another limit.
pub(crate) const AWAY_LIMIT: Duration = Duration::from_millis(250);

/// The time limits of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    /// The end of the call.
    pub(crate) at: Instant,
    /// The end of the wait for a server that is known to be away.
    pub(crate) away_at: Instant,
    /// The time of the last repetition of a call that the server refuses temporarily.
    pub(crate) retry_at: Instant,
}

impl Deadline {
    /// The same limit for everything.
    pub(crate) fn at(at: Instant) -> Self {
        Self { at, away_at: at, retry_at: at }
    }

    /// The same, but the call and its waits end at `limit` if that is earlier.
    pub(crate) fn not_after(self, limit: Instant) -> Self {
        Self { at: self.at.min(limit), away_at: self.away_at.min(limit), ..self }
    }
}

/// The reason for a missing connection.
#[derive(Clone, Debug)]
pub(crate) enum Down {
    /// The connection was lost, or there was none yet. No attempt to connect has failed since then.
    Connecting(Arc<str>),
    /// The last attempt to connect failed.
    Away(Arc<str>),
}

impl Down {
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Connecting(reason) | Self::Away(reason) => reason,
        }
    }

    /// Until when a call waits for the connection.
    pub(crate) fn wait_until(&self, deadline: Deadline) -> Instant {
        match self {
            Self::Connecting(_) => deadline.at,
            Self::Away(_) => deadline.away_at,
        }
    }
}
