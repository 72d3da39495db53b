//! The store's one lock, for threads and for tasks. It protects the scripts; the data has its own lock (see
//! [`crate::engine`]).
//!
//! A task never parks its thread for longer than a command takes, because every other task on that thread would wait
//! too.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::script::Scripts;

/// Enough for other commands and short scripts, for which suspending a task is not worth it.
const SHORT_WAIT: Duration = Duration::from_micros(200);
/// How often a waiting task tries again, because scripts end and others start meanwhile.
const RETRY_EVERY: Duration = Duration::from_millis(50);

/// How long a thread that runs one script after the other leaves the lock to waiting tasks: enough to wake one of them.
const YIELD: Duration = Duration::from_micros(50);

pub(crate) struct StoreLock {
    scripts: Mutex<Scripts>,
    /// The number of waiting tasks. While there are any, each release wakes one.
    waiting: AtomicUsize,
    released: Notify,
}

/// Holds the lock.
pub(crate) struct StoreLockGuard<'a> {
    // Dropped in this order, so that the woken task finds the lock free.
    scripts: MutexGuard<'a, Scripts>,
    _release: Release<'a>,
}

struct Release<'a> {
    waiting: &'a AtomicUsize,
    released: &'a Notify,
}

/// Counts a waiting task until it is dropped.
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

    /// Waits for as long as a task may, and only if the lock is not known to be held for long.
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
            // A release since the last attempt has left a permit, with which this returns at once.
            let _ = timeout(time_left.min(RETRY_EVERY), self.released.notified()).await;
        }
    }

    /// Called between two scripts of clients, on the thread for scripts, which may sleep. Without a pause, this thread
    /// would get the lock again and again while the tasks wait.
    pub(crate) fn yield_to_tasks(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(YIELD);
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
