//! The store's clock: that of the system, or one that a test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;

/// The source of the store's time.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    #[default]
    System,
    Driven(DrivenClock),
}

/// A clock that only a test moves.
#[derive(Clone, Debug)]
pub struct DrivenClock(Arc<DrivenTime>);

#[derive(Debug)]
struct DrivenTime {
    now_us: AtomicU64,
    moved: Notify,
}

impl DrivenClock {
    pub fn starting_at(since_epoch: Duration) -> DrivenClock {
        let now_us = AtomicU64::new(micros(since_epoch));
        DrivenClock(Arc::new(DrivenTime { now_us, moved: Notify::new() }))
    }

    pub fn advance(&self, by: Duration) {
        self.0.now_us.fetch_add(micros(by), Ordering::SeqCst);
        self.0.moved.notify_waiters();
    }

    pub fn set(&self, since_epoch: Duration) {
        self.0.now_us.store(micros(since_epoch), Ordering::SeqCst);
        self.0.moved.notify_waiters();
    }

    fn now_us(&self) -> u64 {
        self.0.now_us.load(Ordering::SeqCst)
    }
}

impl Clock {
    pub(crate) fn now_us(&self) -> u64 {
        match self {
            Clock::System => micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
            Clock::Driven(clock) => clock.now_us(),
        }
    }

    /// Waits until this time.
    pub(crate) async fn reaches(&self, time_us: u64) {
        /// Longer sleeps are split: the clock of the system may be set, and timers have a maximum.
        const MAX_SLEEP: Duration = Duration::from_secs(60);
        loop {
            // Subscribed before the time is read, so that no move of the clock is missed.
            let moved = match self {
                Clock::System => None,
                Clock::Driven(clock) => Some(clock.0.moved.notified()),
            };
            let left = Duration::from_micros(time_us.saturating_sub(self.now_us()));
            if left.is_zero() {
                return;
            }
            match moved {
                Some(moved) => moved.await,
                None => tokio::time::sleep(left.min(MAX_SLEEP)).await,
            }
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
