//! Which faults there were, and when. The checkers read it to know what the documentation allows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Fault, Kind};

/// The effect of a fault on Redis may come after its end: a replica is promoted when its master already runs again.
pub(crate) const AFTERMATH: Duration = Duration::from_secs(10);

/// A fault, and how long it lasted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultEvent {
    pub(crate) fault: Fault,
    pub(crate) origin: Origin,
    pub(crate) began: Instant,
    /// `None` while it lasts.
    pub(crate) ended: Option<Instant>,
}

/// Who caused a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The schedule.
    Injected,
    /// The machine: it was so busy that a master answered too late, and its replica was promoted.
    Machine,
}

impl FaultEvent {
    /// Whether the fault lasted at some time between these two.
    pub(crate) fn overlaps(&self, from: Instant, to: Instant) -> bool {
        self.began <= to && self.ended.is_none_or(|ended| ended >= from)
    }
}

/// All faults of a run, in the order of their begin.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultLog(Arc<Mutex<Vec<FaultEvent>>>);

impl FaultLog {
    /// Records the begin of a fault, and returns its position.
    pub(crate) fn begin(&self, fault: Fault) -> usize {
        let mut all = self.lock();
        all.push(FaultEvent { fault, origin: Origin::Injected, began: Instant::now(), ended: None });
        all.len() - 1
    }

    pub(crate) fn end(&self, position: usize) {
        self.lock()[position].ended = Some(Instant::now());
    }

    /// Records that a replica of a shard was promoted between two times, unless an injected fault explains it.
    pub(crate) fn promoted(&self, shard: usize, from: Instant, to: Instant) {
        let since = from.checked_sub(AFTERMATH).unwrap_or(from);
        let mut all = self.lock();
        if all.iter().any(|event| event.fault.may_fail_over() && event.overlaps(since, to)) {
            return;
        }
        let fault = Fault::LossyFailover(shard);
        all.push(FaultEvent { fault, origin: Origin::Machine, began: from, ended: Some(to) });
    }

    pub(crate) fn all(&self) -> Vec<FaultEvent> {
        self.lock().clone()
    }

    /// The faults that lasted at some time between these two.
    pub(crate) fn between(&self, from: Instant, to: Instant) -> Vec<FaultEvent> {
        self.lock().iter().filter(|event| event.overlaps(from, to)).copied().collect()
    }

    pub(crate) fn count(&self, kind: Kind, origin: Origin) -> usize {
        self.lock().iter().filter(|event| event.fault.kind() == kind && event.origin == origin).count()
    }

    /// How long some fault lasted between these two times, counting overlapping faults each.
    pub(crate) fn total_between(&self, from: Instant, to: Instant) -> Duration {
        let inside = |event: &FaultEvent| {
            let ended = event.ended.unwrap_or(to).min(to);
            ended.saturating_duration_since(event.began.max(from))
        };
        self.between(from, to).iter().map(inside).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<FaultEvent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{AFTERMATH, FaultLog, Origin};
    use crate::fault::{Fault, Kind};

    fn noticed(log: &FaultLog) -> usize {
        log.count(Kind::LossyFailover, Origin::Machine)
    }

    #[test]
    fn promotion_is_recorded_unless_a_fault_explains_it() {
        let (log, second) = (FaultLog::default(), Duration::from_secs(1));
        let flushed = log.begin(Fault::FlushAll(0));
        log.end(flushed);
        let now = Instant::now();
        log.promoted(1, now, now + second);
        assert_eq!(noticed(&log), 1, "FLUSHALL does not promote a replica");

        let log = FaultLog::default();
        let killed = log.begin(Fault::KillMaster(0));
        let now = Instant::now();
        log.promoted(0, now, now + second);
        log.end(killed);
        log.promoted(0, now + AFTERMATH - second, now + AFTERMATH);
        assert_eq!(noticed(&log), 0);
        let later = now + AFTERMATH + second;
        log.promoted(0, later, later + second);
        assert_eq!(noticed(&log), 1);
    }
}
