//! The store's one lock, waited for by threads and by tasks. It holds the scripts, which nobody else can reach; the data
//! has a lock inside (see [`crate::engine`]).
//!
//! A task never parks its thread for longer than a command takes: whatever else runs on that thread would stop too.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::script::Scripts;

/// Long enough for the commands and short scripts of others, for which it is not worth suspending a task.
const SHORT_WAIT: Duration = Duration::from_micros(200);
/// How often a waiting task looks by itself, since scripts end and others begin meanwhile.
const RETRY_EVERY: Duration = Duration::from_millis(50);

pub(crate) struct StoreLock {
    scripts: Mutex<Scripts>,
    /// Tasks that wait; while there are any, each release wakes one.
    waiting: AtomicUsize,
    released: Notify,
}

/// The lock is held.
pub(crate) struct StoreLockGuard<'a> {
    // Dropped in this order: the task that is woken finds the lock free.
    scripts: MutexGuard<'a, Scripts>,
    _release: Release<'a>,
}

struct Release<'a> {
    waiting: &'a AtomicUsize,
    released: &'a Notify,
}

/// Counts a task that waits, until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl StoreLock {
    pub(crate) fn new(scripts: Scripts) -> StoreLock {
        StoreLock { scripts: Mutex::new(scripts), waiting: AtomicUsize::new(0), released: Notify::new() }
    }

    pub(crate) fn try_lock(&self) -> Option<StoreLockGuard<'_>> {
        self.scripts.try_lock().map(|scripts| self.guard(scripts))
    }

    /// Waits by parking the thread.
    pub(crate) fn lock_within(&self, limit: Duration) -> Option<StoreLockGuard<'_>> {
        self.scripts.try_lock_for(limit).map(|scripts| self.guard(scripts))
    }

    /// Waits for no longer than a task may: only while nobody is known to hold the lock for long.
    pub(crate) fn lock_briefly(&self, held_for_long: impl Fn() -> bool) -> Option<StoreLockGuard<'_>> {
        let guard = self.try_lock();
        if guard.is_some() || self.waiting.load(Ordering::SeqCst) > 0 || held_for_long() {
            return guard;
        }
        self.lock_within(SHORT_WAIT)
    }

    /// Waits in a task, until `time_left` is zero.
    pub(crate) async fn lock(&self, time_left: impl Fn() -> Duration) -> Option<StoreLockGuard<'_>> {
        let _waiting = Waiting::begin(&self.waiting);
        loop {
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
            let time_left = time_left();
            if time_left.is_zero() {
                return None;
            }
            // A release since the last look has left a permit, with which this returns at once.
            let _ = timeout(time_left.min(RETRY_EVERY), self.released.notified()).await;
        }
    }

    fn guard<'a>(&'a self, scripts: MutexGuard<'a, Scripts>) -> StoreLockGuard<'a> {
        StoreLockGuard { scripts, _release: Release { waiting: &self.waiting, released: &self.released } }
    }
}

impl Waiting<'_> {
    fn begin(count: &AtomicUsize) -> Waiting<'_> {
        count.fetch_add(1, Ordering::SeqCst);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.released.notify_one();
        }
    }
}

impl Deref for StoreLockGuard<'_> {
    type Target = Scripts;

    fn deref(&self) -> &Scripts {
        &self.scripts
    }
}

impl DerefMut for StoreLockGuard<'_> {
    fn deref_mut(&mut self) -> &mut Scripts {
        &mut self.scripts
    }
}
