//! Reads keys after they were written, through a connection of the proxy, and reports what the command did not show.
//!
//! The rate at which keys are read and the number of keys that wait are bounded; keys above the bounds are counted, not read.

use std::sync::Arc;
use std::time::Duration;

use hob_schema_audit::{KeyChecker, MismatchedKey, WrittenKeys};
use hob_store::Store;
use tokio::time::{Instant, sleep, sleep_until};

use crate::Shared;
use crate::judge::Finding;
use crate::ledger::{Origin, When, count};

/// Keys are read in turns.
const TURN: Duration = Duration::from_millis(100);
/// Maximum time that the keys which wait at the end may take.
pub(crate) const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// The client and the command that wrote a key.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) client: Arc<str>,
    pub(crate) command: Arc<str>,
}

/// The keys of one server that have to be read.
#[derive(Debug)]
pub(crate) struct Checks {
    written: WrittenKeys<Writer>,
}

impl Checks {
    pub(crate) fn new(grace: Duration) -> Checks {
        Checks { written: WrittenKeys::new(grace) }
    }

    /// Adds a key, unless it already waits. Returns whether the key will be read.
    pub(crate) fn add(&self, key: &[u8], writer: impl FnOnce() -> Writer) -> bool {
        self.written.add(key, writer)
    }

    /// Reads keys of a server until the future is dropped.
    pub(crate) async fn run(&self, shared: &Shared, store: Store) {
        let checker = KeyChecker::new(store).await;
        let per_turn = (shared.options.reads_per_second / 10).max(1) as usize;
        loop {
            let started = Instant::now();
            self.turn(shared, &checker, per_turn).await;
            sleep_until(started + TURN).await;
        }
    }

    /// Waits until no key waits, while [`run`](Self::run) continues.
    pub(crate) async fn drained(&self) {
        while !self.written.is_empty() {
            sleep(TURN).await;
        }
    }

    async fn turn(&self, shared: &Shared, checker: &KeyChecker, max: usize) {
        match self.written.turn(checker, &shared.judge.catalog, max).await {
            Ok(turn) => {
                count(&shared.ledger.counts.checked, turn.checked as u64);
                for (key, writer) in turn.mismatched {
                    report(shared, &key, &writer);
                }
            }
            Err(failed) => {
                tracing::warn!(error = %failed.error, "failed to read keys after a write");
                count(&shared.ledger.counts.unchecked, failed.unchecked as u64);
            }
        }
    }
}

fn report(shared: &Shared, key: &MismatchedKey, writer: &Writer) {
    let origin = Origin { client: &writer.client, command: &writer.command };
    for violation in &key.violations {
        let finding = Finding { key: key.key.clone(), family: key.family, violation: violation.clone() };
        shared.record(When::After, origin, &finding);
    }
}
