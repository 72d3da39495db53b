//! The store's clock: that of the system, or one that a test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The source of the store's time.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    #[default]
    System,
    Driven(DrivenClock),
}

/// A clock that only a test moves.
#[derive(Clone, Debug)]
pub struct DrivenClock(Arc<AtomicU64>);

impl DrivenClock {
    pub fn starting_at(since_epoch: Duration) -> DrivenClock {
        DrivenClock(Arc::new(AtomicU64::new(micros(since_epoch))))
    }

    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(micros(by), Ordering::SeqCst);
    }

    pub fn set(&self, since_epoch: Duration) {
        self.0.store(micros(since_epoch), Ordering::SeqCst);
    }
}

impl Clock {
    pub(crate) fn now_us(&self) -> u64 {
        match self {
            Clock::System => micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
            Clock::Driven(clock) => clock.0.load(Ordering::SeqCst),
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
