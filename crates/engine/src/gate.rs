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
const BRIEFLY: Duration = Duration::from_micros(200);
/// How often a waiting task looks by itself, since scripts end and others begin meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(crate) struct Gate {
    scripts: Mutex<Scripts>,
    /// Tasks that wait; while there are any, each release wakes one.
    waiting: AtomicUsize,
    released: Notify,
}

/// The lock is held.
pub(crate) struct Held<'a> {
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

impl Gate {
    pub(crate) fn new(scripts: Scripts) -> Gate {
        Gate { scripts: Mutex::new(scripts), waiting: AtomicUsize::new(0), released: Notify::new() }
    }

    pub(crate) fn try_enter(&self) -> Option<Held<'_>> {
        self.scripts.try_lock().map(|scripts| self.held(scripts))
    }

    /// Waits by parking the thread.
    pub(crate) fn enter_within(&self, limit: Duration) -> Option<Held<'_>> {
        self.scripts.try_lock_for(limit).map(|scripts| self.held(scripts))
    }

    /// Waits for no longer than a task may: only while nobody is known to hold the lock for long.
    pub(crate) fn enter_briefly(&self, held_for_long: impl Fn() -> bool) -> Option<Held<'_>> {
        let held = self.try_enter();
        if held.is_some() || self.waiting.load(Ordering::SeqCst) > 0 || held_for_long() {
            return held;
        }
        self.enter_within(BRIEFLY)
    }

    /// Waits in a task, until `patience` is zero.
    pub(crate) async fn enter(&self, patience: impl Fn() -> Duration) -> Option<Held<'_>> {
        let _waiting = Waiting::begin(&self.waiting);
        loop {
            if let Some(held) = self.try_enter() {
                return Some(held);
            }
            let patience = patience();
            if patience.is_zero() {
                return None;
            }
            // A release since the last look has left a permit, with which this returns at once.
            let _ = timeout(patience.min(LOOK_EVERY), self.released.notified()).await;
        }
    }

    fn held<'a>(&'a self, scripts: MutexGuard<'a, Scripts>) -> Held<'a> {
        Held { scripts, _release: Release { waiting: &self.waiting, released: &self.released } }
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

impl Deref for Held<'_> {
    type Target = Scripts;

    fn deref(&self) -> &Scripts {
        &self.scripts
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Scripts {
        &mut self.scripts
    }
}
