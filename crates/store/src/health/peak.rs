//! The minute with the most calls to the store so far (P10).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

const MINUTE_MS: u64 = 60_000;

/// Counts calls per minute and keeps the highest count. Calls at a minute boundary may count for either minute.
#[derive(Debug, Default)]
pub(crate) struct Peak {
    minute: AtomicU64,
    calls: AtomicU64,
    busiest: Mutex<Option<BusyMinute>>,
}

/// A minute and its number of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BusyMinute {
    /// When it began, in Unix milliseconds.
    pub since_unix_ms: u64,
    /// Calls in that minute, answered or not.
    pub calls: u64,
}

impl Peak {
    pub(crate) fn count(&self, now_unix_ms: u64) {
        let minute = now_unix_ms / MINUTE_MS;
        let before = self.minute.load(Relaxed);
        // The caller that wins the exchange closes the previous minute.
        if before != minute && self.minute.compare_exchange(before, minute, Relaxed, Relaxed).is_ok() {
            let over = BusyMinute { since_unix_ms: before * MINUTE_MS, calls: self.calls.swap(0, Relaxed) };
            let mut busiest = self.busiest.lock().unwrap_or_else(PoisonError::into_inner);
            *busiest = busier(*busiest, over);
        }
        self.calls.fetch_add(1, Relaxed);
    }

    /// The busiest minute so far, including the current one; `None` before the first call.
    pub(crate) fn busiest(&self) -> Option<BusyMinute> {
        let calls = self.calls.load(Relaxed);
        let now = BusyMinute { since_unix_ms: self.minute.load(Relaxed) * MINUTE_MS, calls };
        busier(*self.busiest.lock().unwrap_or_else(PoisonError::into_inner), now)
    }
}

/// The earlier one of two equal minutes.
fn busier(before: Option<BusyMinute>, other: BusyMinute) -> Option<BusyMinute> {
    before.filter(|before| before.calls >= other.calls).or((other.calls > 0).then_some(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P10
    #[test]
    fn busiest_minute_is_kept() {
        let peak = Peak::default();
        assert_eq!(peak.busiest(), None);
        for (minute, calls) in [(10, 3), (11, 5), (13, 5), (14, 1)] {
            for _ in 0..calls {
                peak.count(minute * MINUTE_MS + 59_999);
            }
        }
        assert_eq!(peak.busiest(), Some(BusyMinute { since_unix_ms: 11 * MINUTE_MS, calls: 5 }));
        for _ in 0..6 {
            peak.count(15 * MINUTE_MS);
        }
        assert_eq!(peak.busiest(), Some(BusyMinute { since_unix_ms: 15 * MINUTE_MS, calls: 6 }));
    }
}
