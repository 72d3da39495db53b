//! Time as the database stores it: milliseconds since 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time: Unix milliseconds, in a `BIGINT` column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMs(pub i64);

impl UnixMs {
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(milliseconds(duration)))
    }

    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(milliseconds(duration)))
    }

    /// The time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: UnixMs) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The current time of this machine, which is also the clock of SQLite. PostgreSQL has its own clock:
    /// [`Transaction::now`](crate::Transaction::now).
    pub fn now() -> Self {
        Self(milliseconds(hob_units::unix_time()))
    }
}

impl From<UnixMs> for SystemTime {
    fn from(time: UnixMs) -> Self {
        let distance = Duration::from_millis(time.0.unsigned_abs());
        if time.0 < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

crate::column!(UnixMs(i64));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(UnixMs(i64::MAX).plus(Duration::MAX), UnixMs(i64::MAX));
        assert_eq!(UnixMs(i64::MIN).minus(Duration::MAX), UnixMs(i64::MIN));
    }

    #[test]
    fn since_a_later_time_is_zero() {
        assert_eq!(UnixMs(1_500).since(UnixMs(500)), Duration::from_secs(1));
        assert_eq!(UnixMs(500).since(UnixMs(1_500)), Duration::ZERO);
    }

    #[test]
    fn times_before_1970_convert() {
        let before: SystemTime = UnixMs(-1).into();
        assert_eq!(UNIX_EPOCH.duration_since(before).unwrap(), Duration::from_millis(1));
    }
}
