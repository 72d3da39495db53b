//! The last replies of the store, by caller. They bound an open rule while the store is slow: a store that stalls for a
//! moment executes the late calls all the same, so every request without a reply uses up a part of the last known quota.

use std::time::{Duration, Instant};

use hob_store::limit::{self, Decision, Quota};
use hob_units::RecentMap;
use parking_lot::Mutex;

use crate::identity::Identity;

const MAX_CALLERS: usize = 100_000;

#[derive(Debug)]
pub(crate) struct KnownQuotas {
    /// What a caller without a known quota may use: the smallest limit of the rule.
    smallest_limit: u32,
    longest_window: Duration,
    callers: Mutex<RecentMap<Identity, Known>>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    limit: u32,
    remaining: u32,
    /// From then on the caller has its full limit again.
    until: Instant,
}

impl KnownQuotas {
    pub(crate) fn new(limit: &limit::Rule) -> Self {
        let windows = limit.windows();
        Self {
            smallest_limit: limit.max_at_once(),
            longest_window: windows.iter().map(|window| window.period).max().unwrap_or_default(),
            callers: Mutex::new(RecentMap::new(MAX_CALLERS)),
        }
    }

    /// Records a decision of the store.
    pub(crate) fn record(&self, identity: &Identity, decision: &Decision, now: Instant) {
        let Quota { limit, remaining, reset_after } = decision.quota();
        let (remaining, known_for) = match decision {
            Decision::Allowed(_) => (remaining, reset_after),
            Decision::Denied { retry_after, .. } => (0, *retry_after),
        };
        let known = Known { limit, remaining, until: now + known_for };
        *self.callers.lock().get_or_insert(identity, || known) = known;
    }

    /// Decides a request to which the store has not replied.
    pub(crate) fn take(&self, identity: &Identity, cost: u32, now: Instant) -> Decision {
        let (limit, until) = (self.smallest_limit, now + self.longest_window);
        let full = Known { limit, remaining: limit, until };
        let mut callers = self.callers.lock();
        let known = callers.get_or_insert(identity, || full);
        if known.until <= now {
            *known = full;
        }
        let left = known.until.saturating_duration_since(now);
        let quota = |remaining| Quota { limit: known.limit, remaining, reset_after: left };
        match known.remaining.checked_sub(cost) {
            Some(remaining) => {
                let allowed = Decision::Allowed(quota(remaining));
                known.remaining = remaining;
                allowed
            }
            None => Decision::Denied { quota: quota(known.remaining), retry_after: left },
        }
    }
}

#[cfg(test)]
mod tests {
    use hob_store::limit::Algorithm;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn allowed(quotas: &KnownQuotas, who: &Identity, now: Instant) -> usize {
        (0..50).filter(|_| quotas.take(who, 1, now).is_allowed()).count()
    }

    #[test]
    fn request_without_a_reply_uses_the_last_known_quota() {
        let windows = vec!["10/1s".parse().unwrap(), "40/1m".parse().unwrap()];
        let quotas = KnownQuotas::new(&limit::Rule::new(Algorithm::SlidingLog, windows).unwrap());
        let (who, other, now) = (Identity::new("a").unwrap(), Identity::new("b").unwrap(), Instant::now());
        let quota = |remaining| Quota { limit: 10, remaining, reset_after: SECOND };
        quotas.record(&who, &Decision::Allowed(quota(3)), now);
        assert_eq!(allowed(&quotas, &who, now), 3);
        quotas.record(&who, &Decision::Denied { quota: quota(0), retry_after: SECOND }, now);
        assert_eq!(allowed(&quotas, &who, now), 0);
        assert_eq!(allowed(&quotas, &who, now + SECOND), 10, "the full limit again");
        assert_eq!(allowed(&quotas, &other, now), 10, "a caller without a known quota");
    }
}
