//! Reads keys after they were written, through a connection of the proxy, and judges what the command did not show.
//!
//! A key is read only after a grace period, because a program may set its TTL or trim it with the next command. What is wrong
//! then is read once more after another grace period, in case the first read came between two commands. The number of keys
//! that wait and the rate at which they are read are bounded; keys above the bounds are counted, not read.

use std::collections::{HashMap, VecDeque, hash_map};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hob_schema_audit::{KeyChecker, MismatchedKey};
use hob_store::Store;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};

use crate::Shared;
use crate::judge::Finding;
use crate::ledger::{Origin, When, count};

/// Maximum number of keys that wait.
const MAX_WAITING: usize = 10_000;
/// Longer keys are not read.
const MAX_KEY_BYTES: usize = 4 * 1024;
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
#[derive(Debug, Default)]
pub(crate) struct Checks {
    waiting: Mutex<Waiting>,
    /// The number of waiting keys, read without the lock.
    len: AtomicUsize,
    /// The number of keys that are being read.
    reading: AtomicUsize,
}

#[derive(Debug, Default)]
struct Waiting {
    order: VecDeque<(Instant, Vec<u8>)>,
    keys: HashMap<Vec<u8>, Entry>,
}

#[derive(Debug)]
struct Entry {
    writer: Writer,
    reading: Reading,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    First,
    Second,
}

impl Checks {
    /// Adds a key, unless it already waits.
    pub(crate) fn add(&self, shared: &Shared, key: &[u8], writer: impl FnOnce() -> Writer) {
        let full = self.len.load(Ordering::Relaxed) >= MAX_WAITING;
        if full || key.len() > MAX_KEY_BYTES {
            count(&shared.ledger.counts.unchecked, 1);
            return;
        }
        let mut waiting = self.waiting.lock();
        if !waiting.keys.contains_key(key) {
            let entry = Entry { writer: writer(), reading: Reading::First };
            waiting.insert(key.to_vec(), entry, Instant::now() + shared.options.grace);
            self.len.store(waiting.keys.len(), Ordering::Relaxed);
        }
    }

    fn is_empty(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.keys.is_empty() && self.reading.load(Ordering::Relaxed) == 0
    }

    /// Takes keys that are due, at most so many.
    fn due(&self, max: usize) -> Vec<(Vec<u8>, Entry)> {
        let now = Instant::now();
        let mut waiting = self.waiting.lock();
        let mut due = Vec::new();
        while due.len() < max && waiting.order.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = waiting.order.pop_front() else { break };
            due.extend(waiting.keys.remove_entry(&key));
        }
        self.len.store(waiting.keys.len(), Ordering::Relaxed);
        self.reading.store(due.len(), Ordering::Relaxed);
        due
    }

    /// Reads keys of a server until the future is dropped.
    pub(crate) async fn run(&self, shared: &Shared, store: Store) {
        let checker = KeyChecker::new(store).await;
        let per_turn = (shared.options.reads_per_second / 10).max(1) as usize;
        loop {
            let started = Instant::now();
            self.turn(shared, &checker, per_turn).await;
            self.reading.store(0, Ordering::Relaxed);
            sleep_until(started + TURN).await;
        }
    }

    /// Waits until no key waits, while [`run`](Self::run) continues.
    pub(crate) async fn drained(&self) {
        while !self.is_empty() {
            sleep(TURN).await;
        }
    }

    async fn turn(&self, shared: &Shared, checker: &KeyChecker, max: usize) {
        let due = self.due(max);
        if due.is_empty() {
            return;
        }
        let keys: Vec<Vec<u8>> = due.iter().map(|(key, _)| key.clone()).collect();
        let mismatched = match checker.check(&shared.judge.catalog, keys).await {
            Ok(mismatched) => mismatched,
            Err(error) => {
                tracing::warn!(%error, "failed to read keys after a write");
                count(&shared.ledger.counts.unchecked, due.len() as u64);
                return;
            }
        };
        count(&shared.ledger.counts.checked, due.len() as u64);
        let mut entries: HashMap<Vec<u8>, Entry> = due.into_iter().collect();
        for key in mismatched {
            if let Some(entry) = entries.remove(&key.key) {
                self.judge(shared, key, entry);
            }
        }
    }

    /// Reports a key whose second reading does not match either.
    fn judge(&self, shared: &Shared, key: MismatchedKey, entry: Entry) {
        if entry.reading == Reading::First {
            let again = Entry { reading: Reading::Second, ..entry };
            let mut waiting = self.waiting.lock();
            waiting.insert(key.key, again, Instant::now() + shared.options.grace);
            self.len.store(waiting.keys.len(), Ordering::Relaxed);
            return;
        }
        let origin = Origin { client: &entry.writer.client, command: &entry.writer.command };
        for violation in key.violations {
            let finding = Finding { key: key.key.clone(), family: key.family, violation };
            shared.record(When::After, origin, &finding);
        }
    }
}

impl Waiting {
    /// A key that already waits, because it was written again while it was read, is read once: as the second time if this is
    /// the second time.
    fn insert(&mut self, key: Vec<u8>, entry: Entry, due: Instant) {
        match self.keys.entry(key) {
            hash_map::Entry::Occupied(mut waiting) => waiting.get_mut().reading = entry.reading,
            hash_map::Entry::Vacant(vacant) => {
                self.order.push_back((due, vacant.key().clone()));
                vacant.insert(entry);
            }
        }
    }
}
