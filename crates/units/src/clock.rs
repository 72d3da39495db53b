//! The clock of this machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time since 1970 by the clock of this machine; zero if the clock is before 1970.
#[must_use]
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The same in milliseconds.
#[must_use]
pub fn unix_ms() -> u64 {
    u64::try_from(unix_time().as_millis()).unwrap_or(u64::MAX)
}
