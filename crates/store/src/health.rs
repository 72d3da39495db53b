//! Health of the connection to the store (P10 P11).

pub(crate) mod degraded;
mod latency;
pub(crate) mod meter;
mod peak;

use serde::Serialize;

pub use crate::health::degraded::{Degradation, Fault};
pub use crate::health::latency::Summary;
pub use crate::health::meter::Server;
use crate::health::meter::{OperationKind, Reading};
pub use crate::health::peak::BusyMinute;

/// A snapshot of the health of the store.
#[derive(Clone, Debug, Serialize)]
pub struct Health {
    /// The address, without credentials.
    pub store: String,
    /// The server's name and version, once it has answered.
    pub server: Option<Server>,
    /// Whether calls can be served.
    pub state: State,
    /// When a connection last came up or went down, in Unix milliseconds.
    pub since_unix_ms: u64,
    /// Attempts to connect since the handle was opened.
    pub connection: Connection,
    /// Calls since the handle was opened.
    pub operations: Operations,
    /// The systems whose calls the store refuses.
    pub degraded: Vec<Degradation>,
}

/// Whether calls can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Every server that is needed has a connection.
    Connected,
    /// Some masters of a Cluster have no connection.
    Partial {
        /// Masters with a connection.
        up: u64,
        /// All masters.
        of: u64,
    },
    /// There is no connection; attempts continue.
    Reconnecting,
}

/// The connection metrics of P11.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Connection {
    /// Attempts to connect.
    pub attempts: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// The share of attempts that succeeded; 1 if there were none.
    pub success_rate: f64,
    /// Failed attempts since the last success.
    pub consecutive_failures: u64,
    /// The last error.
    pub last_error: Option<String>,
}

/// Calls by kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Operations {
    /// All calls, answered or not.
    pub total: u64,
    /// Calls that failed: the deadline passed, there was no connection, or the server refuses calls ([`Fault`]).
    pub failed: u64,
    /// Single commands.
    pub command: Summary,
    /// Batches, each counted once.
    pub batch: Summary,
    /// Single script calls.
    pub script: Summary,
    /// Published messages.
    pub publish: Summary,
    /// The busiest minute so far (P10).
    pub busiest: Option<BusyMinute>,
}

impl Operations {
    /// The share of calls that did not fail; 1 if there were none.
    #[must_use]
    pub fn success_rate(&self) -> f64 {
        if self.total == 0 { 1.0 } else { (self.total - self.failed) as f64 / self.total as f64 }
    }

    /// The mean duration of an answered call in microseconds; 0 if there was none.
    #[must_use]
    pub fn mean_us(&self) -> u64 {
        let kinds = [&self.command, &self.batch, &self.script, &self.publish];
        let (count, sum) =
            kinds.iter().fold((0, 0), |(count, sum), kind| (count + kind.count, sum + kind.sum_us));
        sum.checked_div(count).unwrap_or(0)
    }
}

impl Health {
    /// Whether every call can be served now (P11).
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.state == State::Connected && self.degraded.is_empty()
    }

    pub(crate) fn from_reading(store: String, reading: Reading, embedded: bool) -> Self {
        let state = match (reading.up, reading.connections) {
            _ if embedded => State::Connected,
            (0, _) => State::Reconnecting,
            (up, of) if up >= of => State::Connected,
            (up, of) => State::Partial { up, of },
        };
        let answered: u64 = reading.operations.iter().map(|(summary, _)| summary.count).sum();
        let failed: u64 = reading.operations.iter().map(|(_, failed)| failed).sum();
        let of_kind = |kind: OperationKind| reading.operations[kind as usize].0;
        let operations = Operations {
            total: answered + failed,
            failed,
            command: of_kind(OperationKind::Command),
            batch: of_kind(OperationKind::Batch),
            script: of_kind(OperationKind::Script),
            publish: of_kind(OperationKind::Publish),
            busiest: reading.busiest,
        };
        let success_rate = match reading.attempts {
            0 => 1.0,
            attempts => (attempts - reading.failures) as f64 / attempts as f64,
        };
        let connection = Connection {
            attempts: reading.attempts,
            failures: reading.failures,
            success_rate,
            consecutive_failures: reading.consecutive_failures,
            last_error: reading.last_error,
        };
        Self {
            store,
            server: reading.server,
            state,
            since_unix_ms: reading.since_unix_ms,
            connection,
            operations,
            degraded: reading.degraded,
        }
    }
}
