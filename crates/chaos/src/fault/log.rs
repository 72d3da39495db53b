//! Which faults were injected, and when. The checkers read it to know what the documentation allows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Fault, Kind};

/// A fault that was injected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Injected {
    pub(crate) fault: Fault,
    pub(crate) began: Instant,
    /// `None` while it lasts.
    pub(crate) ended: Option<Instant>,
}

impl Injected {
    /// Whether the fault lasted at some time between these two.
    pub(crate) fn overlaps(&self, from: Instant, to: Instant) -> bool {
        self.began <= to && self.ended.is_none_or(|ended| ended >= from)
    }
}

/// All faults of a run, in the order of their begin.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultLog(Arc<Mutex<Vec<Injected>>>);

impl FaultLog {
    /// Records the begin of a fault, and returns its position.
    pub(crate) fn begin(&self, fault: Fault) -> usize {
        let mut all = self.lock();
        all.push(Injected { fault, began: Instant::now(), ended: None });
        all.len() - 1
    }

    pub(crate) fn end(&self, position: usize) {
        self.lock()[position].ended = Some(Instant::now());
    }

    pub(crate) fn all(&self) -> Vec<Injected> {
        self.lock().clone()
    }

    /// The faults that lasted at some time between these two.
    pub(crate) fn between(&self, from: Instant, to: Instant) -> Vec<Injected> {
        self.lock().iter().filter(|injected| injected.overlaps(from, to)).copied().collect()
    }

    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.lock().iter().filter(|injected| injected.fault.kind() == kind).count()
    }

    /// How long some fault lasted between these two times, counting overlapping faults each.
    pub(crate) fn total_between(&self, from: Instant, to: Instant) -> Duration {
        let inside = |injected: &Injected| {
            let ended = injected.ended.unwrap_or(to).min(to);
            ended.saturating_duration_since(injected.began.max(from))
        };
        self.between(from, to).iter().map(inside).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Injected>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
