//! The clock that scripts use: the store's, or one that a test controls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The Lua code with which every script that reads the time starts; see [`Script::with`](crate::Script::with).
///
/// It declares `clock_us(given)`, `clock_ms(given)`, `int(number)` and
/// `collect_at(key, at_ms, now_ms, given)`, where `given` is the argument made by [`Clock::us`].
pub const CLOCK: &str = include_str!("clock.lua");

/// The source of the time that scripts use.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<AtomicU64>>);

impl Clock {
    /// The store's own clock.
    #[must_use]
    pub fn store() -> Self {
        Self(None)
    }

    /// A clock fixed at this Unix time until it is advanced. Clones share the time.
    #[must_use]
    pub fn driven(unix: Duration) -> Self {
        Self(Some(Arc::new(AtomicU64::new(micros(unix)))))
    }

    /// Advances a driven clock.
    pub fn advance(&self, by: Duration) {
        if let Some(us) = &self.0 {
            us.fetch_add(micros(by), Relaxed);
        }
    }

    /// Sets the time of a test clock. It may be earlier than before, because scripts must handle that.
    pub fn set(&self, unix: Duration) {
        if let Some(us) = &self.0 {
            us.store(micros(unix), Relaxed);
        }
    }

    /// The script argument in microseconds; empty for the store's clock.
    #[must_use]
    pub fn us(&self) -> String {
        self.0.as_ref().map(|us| us.load(Relaxed).to_string()).unwrap_or_default()
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A duration as a script argument, at least 1 ms: a lease of 0 ms would have expired as soon as it is taken.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).clamp(1, 1 << 42)
}
