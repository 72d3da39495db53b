//! Counts connections and calls, for [`Health`](crate::Health) and the `metrics` facade.
//!
//! The metric handles are registered when a store is opened, so install a recorder before opening one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hob_units::unix_ms;

use serde::Serialize;

use crate::connection::history::field;
use crate::connection::logged::Change;
use crate::error::Error;
use crate::health::degraded::{Degradation, Fault, System};
use crate::health::latency::{Latency, Summary};
use crate::health::peak::{BusyMinute, Peak};

/// The kinds of operations with separate latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationKind {
    Command,
    Batch,
    Script,
    Publish,
}

/// The names of the kinds, in their order.
const KINDS: [&str; 4] = ["command", "batch", "script", "publish"];

/// The server behind the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Server {
    /// `redis`, `valkey` or `embedded`.
    pub kind: &'static str,
    /// The server's own version number.
    pub version: String,
}

#[derive(Debug)]
pub(crate) struct Meter {
    attempts: AtomicU64,
    failures: AtomicU64,
    consecutive: AtomicU64,
    connections: AtomicU64,
    up: AtomicU64,
    since_unix_ms: AtomicU64,
    observed: Mutex<Observed>,
    operations: [Operations; 4],
    peak: Peak,
    /// One for each name; see [`Store::for_system`](crate::Store::for_system).
    systems: Mutex<Vec<Arc<System>>>,
    exported: Exported,
}

#[derive(Debug, Default)]
struct Observed {
    server: Option<Server>,
    last_error: Option<String>,
    /// The eviction policy that was reported last.
    eviction: Option<String>,
}

struct Operations {
    latency: Latency,
    failed: AtomicU64,
    seconds: metrics::Histogram,
    errors: metrics::Counter,
}

struct Exported {
    attempts: metrics::Counter,
    failures: metrics::Counter,
    connections: metrics::Gauge,
    up: metrics::Gauge,
}

/// Counts a connection as up until it is dropped.
pub(crate) struct Up(Arc<Meter>);

impl Meter {
    pub(crate) fn new() -> Arc<Self> {
        let operations = KINDS.map(|name| Operations {
            latency: Latency::default(),
            failed: AtomicU64::new(0),
            seconds: metrics::histogram!("hob_store_operation_seconds", "kind" => name),
            errors: metrics::counter!("hob_store_operation_errors_total", "kind" => name),
        });
        Arc::new(Self {
            attempts: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            consecutive: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            up: AtomicU64::new(0),
            since_unix_ms: AtomicU64::new(unix_ms()),
            observed: Mutex::default(),
            operations,
            peak: Peak::default(),
            systems: Mutex::default(),
            exported: Exported {
                attempts: metrics::counter!("hob_store_connection_attempts_total"),
                failures: metrics::counter!("hob_store_connection_failures_total"),
                connections: metrics::gauge!("hob_store_connections"),
                up: metrics::gauge!("hob_store_connections_up"),
            },
        })
    }

    /// The state of the system with this name.
    pub(crate) fn system(&self, name: &'static str) -> Arc<System> {
        let mut systems = self.systems.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(system) = systems.iter().find(|system| system.name() == name) {
            return Arc::clone(system);
        }
        let system = System::new(name);
        systems.push(Arc::clone(&system));
        system
    }

    fn degraded(&self) -> Vec<Degradation> {
        let systems = self.systems.lock().unwrap_or_else(PoisonError::into_inner);
        systems.iter().filter_map(|system| system.degradation()).collect()
    }

    /// Records one operation. No answer and a refusal by the whole server count as failures, other error replies
    /// do not.
    pub(crate) fn record(&self, kind: OperationKind, took: Duration, error: Option<&Error>) {
        let operations = &self.operations[kind as usize];
        self.peak.count(unix_ms());
        match error {
            Some(error) if is_failure(error) => {
                operations.failed.fetch_add(1, Relaxed);
                operations.errors.increment(1);
            }
            _ => {
                operations.latency.record(took);
                operations.seconds.record(took.as_secs_f64());
            }
        }
    }

    pub(crate) fn connection_opened(&self) {
        self.exported.connections.set((self.connections.fetch_add(1, Relaxed) + 1) as f64);
    }

    pub(crate) fn connection_closed(&self) {
        self.exported.connections.set((self.connections.fetch_sub(1, Relaxed) - 1) as f64);
    }

    pub(crate) fn connecting(&self) {
        self.attempts.fetch_add(1, Relaxed);
        self.exported.attempts.increment(1);
    }

    pub(crate) fn connect_failed(&self) {
        self.failures.fetch_add(1, Relaxed);
        self.consecutive.fetch_add(1, Relaxed);
        self.exported.failures.increment(1);
    }

    pub(crate) fn connected(self: &Arc<Self>) -> Up {
        self.consecutive.store(0, Relaxed);
        self.up.fetch_add(1, Relaxed);
        self.changed();
        Up(self.clone())
    }

    fn changed(&self) {
        self.since_unix_ms.store(unix_ms(), Relaxed);
        self.exported.up.set(self.up.load(Relaxed) as f64);
    }

    pub(crate) fn last_error(&self, reason: &str) {
        self.observed().last_error = Some(reason.to_owned());
    }

    /// Reads the name and version of the server from `INFO server`.
    pub(crate) fn server(&self, info: &str) {
        let server =
            |kind, name| field(info, name).map(|version| Server { kind, version: version.to_owned() });
        let found = server("valkey", "valkey_version").or_else(|| server("redis", "redis_version"));
        if found.is_some() {
            self.observed().server = found;
        }
    }

    /// Records that a server evicts keys. New if no server with this policy was seen before.
    pub(crate) fn evicts(&self, policy: &str) -> Change {
        let known = self.observed().eviction.replace(policy.to_owned());
        if known.as_deref() == Some(policy) { Change::Known } else { Change::New }
    }

    pub(crate) fn embedded(&self) {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        self.observed().server = Some(Server { kind: "embedded", version });
    }

    fn observed(&self) -> std::sync::MutexGuard<'_, Observed> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn reading(&self) -> Reading {
        let observed = self.observed();
        Reading {
            attempts: self.attempts.load(Relaxed),
            failures: self.failures.load(Relaxed),
            consecutive_failures: self.consecutive.load(Relaxed),
            connections: self.connections.load(Relaxed),
            up: self.up.load(Relaxed),
            since_unix_ms: self.since_unix_ms.load(Relaxed),
            server: observed.server.clone(),
            last_error: observed.last_error.clone(),
            operations: self
                .operations
                .each_ref()
                .map(|kind| (kind.latency.summary(), kind.failed.load(Relaxed))),
            busiest: self.peak.busiest(),
            degraded: self.degraded(),
        }
    }
}

/// A snapshot of all values.
pub(crate) struct Reading {
    pub(crate) attempts: u64,
    pub(crate) failures: u64,
    pub(crate) consecutive_failures: u64,
    pub(crate) connections: u64,
    pub(crate) up: u64,
    pub(crate) since_unix_ms: u64,
    pub(crate) server: Option<Server>,
    pub(crate) last_error: Option<String>,
    pub(crate) operations: [(Summary, u64); 4],
    pub(crate) busiest: Option<BusyMinute>,
    pub(crate) degraded: Vec<Degradation>,
}

/// Whether an error counts as a failure of the store.
pub(crate) fn is_failure(error: &Error) -> bool {
    matches!(error, Error::Unavailable { .. } | Error::Interrupted { .. } | Error::Reply(_))
        || Fault::of(error).is_some()
}

impl Drop for Up {
    fn drop(&mut self) {
        self.0.up.fetch_sub(1, Relaxed);
        self.0.changed();
    }
}

impl std::fmt::Debug for Operations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operations").field("failed", &self.failed).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Exported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exported").finish_non_exhaustive()
    }
}
