//! Keys that were written and have to be read soon.
//!
//! A key is read only after a grace period, because a program may set its TTL or trim it with the next command. What is wrong
//! then is read once more after another grace period, in case the first read came between two commands. The number of keys
//! that wait is bounded.

use std::collections::{HashMap, VecDeque, hash_map};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hob_schema::Catalog;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::Error;
use crate::single_keys::{KeyChecker, MismatchedKey};

/// Maximum number of keys that wait.
const MAX_WAITING: usize = 10_000;
/// Longer keys are not read.
const MAX_KEY_BYTES: usize = 4 * 1024;

/// The keys of one server that have to be read, with what is known about their writer.
#[derive(Debug)]
pub struct WrittenKeys<W> {
    grace: Duration,
    waiting: Mutex<Waiting<W>>,
    /// The number of waiting keys, read without the lock.
    len: AtomicUsize,
    /// The number of keys that are being read.
    reading: AtomicUsize,
}

/// What one turn has read.
#[derive(Debug)]
pub struct Turn<W> {
    /// Keys that were read.
    pub checked: usize,
    /// Keys that do not match the schemas, also when they were read a second time.
    pub mismatched: Vec<(MismatchedKey, W)>,
}

/// Keys could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct TurnFailed {
    #[source]
    pub error: Error,
    /// Keys that are not read any more.
    pub unchecked: usize,
}

#[derive(Debug)]
struct Waiting<W> {
    order: VecDeque<(Instant, Vec<u8>)>,
    keys: HashMap<Vec<u8>, Entry<W>>,
}

#[derive(Debug)]
struct Entry<W> {
    writer: W,
    reading: Reading,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    First,
    Second,
}

impl<W> WrittenKeys<W> {
    /// `grace` is the time between a write and the read.
    pub fn new(grace: Duration) -> WrittenKeys<W> {
        WrittenKeys {
            grace,
            waiting: Mutex::new(Waiting { order: VecDeque::new(), keys: HashMap::new() }),
            len: AtomicUsize::new(0),
            reading: AtomicUsize::new(0),
        }
    }

    /// Adds a key, unless it already waits. Returns whether the key will be read.
    pub fn add(&self, key: &[u8], writer: impl FnOnce() -> W) -> bool {
        if self.len.load(Ordering::Relaxed) >= MAX_WAITING || key.len() > MAX_KEY_BYTES {
            return false;
        }
        let mut waiting = self.waiting.lock();
        if !waiting.keys.contains_key(key) {
            let entry = Entry { writer: writer(), reading: Reading::First };
            waiting.insert(key.to_vec(), entry, Instant::now() + self.grace);
            self.len.store(waiting.keys.len(), Ordering::Relaxed);
        }
        true
    }

    /// Whether no key waits and none is being read.
    pub fn is_empty(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.keys.is_empty() && self.reading.load(Ordering::Relaxed) == 0
    }

    /// Reads keys that are due, at most so many.
    pub async fn turn(
        &self,
        checker: &KeyChecker,
        catalog: &Catalog,
        max: usize,
    ) -> Result<Turn<W>, TurnFailed> {
        let due = self.due(max);
        let mut turn = Turn { checked: due.len(), mismatched: Vec::new() };
        if due.is_empty() {
            return Ok(turn);
        }
        let keys: Vec<Vec<u8>> = due.iter().map(|(key, _)| key.clone()).collect();
        let checked = checker.check(catalog, keys).await;
        let mismatched = checked.map_err(|error| {
            self.reading.store(0, Ordering::Relaxed);
            TurnFailed { error, unchecked: turn.checked }
        })?;
        let mut entries: HashMap<Vec<u8>, Entry<W>> = due.into_iter().collect();
        for key in mismatched {
            let Some(entry) = entries.remove(&key.key) else { continue };
            match entry.reading {
                Reading::First => self.read_again(key.key, entry),
                Reading::Second => turn.mismatched.push((key, entry.writer)),
            }
        }
        self.reading.store(0, Ordering::Relaxed);
        Ok(turn)
    }

    fn due(&self, max: usize) -> Vec<(Vec<u8>, Entry<W>)> {
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

    fn read_again(&self, key: Vec<u8>, entry: Entry<W>) {
        let mut waiting = self.waiting.lock();
        waiting.insert(key, Entry { reading: Reading::Second, ..entry }, Instant::now() + self.grace);
        self.len.store(waiting.keys.len(), Ordering::Relaxed);
    }
}

impl<W> Waiting<W> {
    /// A key that already waits, because it was written again while it was read, is read once: as the second time if this is
    /// the second time.
    fn insert(&mut self, key: Vec<u8>, entry: Entry<W>, due: Instant) {
        match self.keys.entry(key) {
            hash_map::Entry::Occupied(mut waiting) => waiting.get_mut().reading = entry.reading,
            hash_map::Entry::Vacant(vacant) => {
                self.order.push_back((due, vacant.key().clone()));
                vacant.insert(entry);
            }
        }
    }
}
