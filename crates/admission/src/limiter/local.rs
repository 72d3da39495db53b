//! Limits that one instance enforces alone while the store is unavailable: GCRA on the process's own clock.

use std::time::{Duration, Instant};

use hob_store::limit::{self, Decision, Quota};
use hob_units::RecentMap;
use parking_lot::Mutex;

use crate::identity::Identity;

const MAX_CALLERS: usize = 100_000;

#[derive(Debug)]
pub(crate) struct LocalLimits {
    windows: Vec<Window>,
    /// When the backlog of each window is drained, by caller.
    callers: Mutex<RecentMap<Identity, Vec<Instant>>>,
}

#[derive(Debug)]
struct Window {
    /// The time that one request occupies.
    interval: Duration,
    burst: u32,
}

impl LocalLimits {
    pub(crate) fn new(limit: &limit::Rule) -> Self {
        let window = |window: &limit::Window| Window {
            interval: window.period / window.limit,
            burst: window.max_at_once(limit.algorithm()),
        };
        let callers = Mutex::new(RecentMap::new(MAX_CALLERS));
        Self { windows: limit.windows().iter().map(window).collect(), callers }
    }

    pub(crate) fn take(&self, identity: &Identity, cost: u32, now: Instant) -> Decision {
        let mut callers = self.callers.lock();
        let drained_at = callers.get_or_insert(identity, || vec![now; self.windows.len()]);
        let mut denied: Option<(Duration, Quota)> = None;
        let mut tightest: Option<Quota> = None;
        for (window, drained_at) in self.windows.iter().zip(drained_at.iter()) {
            let backlog = drained_at.saturating_duration_since(now);
            let room = (window.interval * window.burst).saturating_sub(backlog);
            let left = u32::try_from(room.as_nanos() / window.interval.as_nanos().max(1)).unwrap_or(u32::MAX);
            let quota = Quota { limit: window.burst, remaining: left, reset_after: backlog };
            let wait = (window.interval * cost).saturating_sub(room);
            if !wait.is_zero() && denied.is_none_or(|(longest, _)| wait > longest) {
                denied = Some((wait, quota));
            }
            if tightest.is_none_or(|tightest| left < tightest.remaining) {
                tightest = Some(quota);
            }
        }
        if let Some((retry_after, quota)) = denied {
            return Decision::Denied { quota, retry_after };
        }
        for (window, drained_at) in self.windows.iter().zip(drained_at.iter_mut()) {
            *drained_at = (*drained_at).max(now) + window.interval * cost;
        }
        let quota = tightest.expect("a limit has a window");
        Decision::Allowed(Quota { remaining: quota.remaining.saturating_sub(cost), ..quota })
    }

    /// Takes back requests that another rule has refused.
    pub(crate) fn give_back(&self, identity: &Identity, cost: u32) {
        let mut callers = self.callers.lock();
        let Some(drained_at) = callers.get_mut(identity) else { return };
        for (window, drained_at) in self.windows.iter().zip(drained_at) {
            *drained_at = drained_at.checked_sub(window.interval * cost).unwrap_or(*drained_at);
        }
    }

    #[cfg(test)]
    fn callers(&self) -> usize {
        self.callers.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use hob_store::limit::Algorithm;

    use super::*;

    fn limits(windows: &[&str]) -> LocalLimits {
        let windows = windows.iter().map(|window| window.parse().unwrap()).collect();
        LocalLimits::new(&limit::Rule::new(Algorithm::Gcra, windows).unwrap())
    }

    #[test]
    fn every_window_must_allow_the_request() {
        let (limits, who, begun) = (limits(&["10/1s", "15/1m"]), Identity::new("a").unwrap(), Instant::now());
        let passed = |at: u64| {
            let now = begun + Duration::from_secs(at);
            (0..20).filter(|_| limits.take(&who, 1, now).is_allowed()).count()
        };
        assert_eq!((passed(0), passed(2), passed(2)), (10, 5, 0));
    }

    /// The number of callers in memory is bounded, however many there are.
    #[test]
    fn memory_is_bounded_by_the_number_of_callers() {
        let (limits, now) = (limits(&["1/1s"]), Instant::now());
        for number in 0..300_000 {
            limits.take(&Identity::new(&format!("caller:{number}")).unwrap(), 1, now);
        }
        assert!(limits.callers() <= MAX_CALLERS);
    }
}
