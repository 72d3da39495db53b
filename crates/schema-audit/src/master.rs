//! One server whose keys are read.

use hob_store::{Store, cmd};
use hob_units::unix_ms;

/// A server, and whether reading from it counts as use of a key.
#[derive(Clone, Debug)]
pub(crate) struct Master {
    store: Store,
    idle_times: IdleTimes,
    field_ttls: bool,
    /// How far the server's clock is ahead of the clock of this machine.
    clock_ahead_ms: i64,
}

/// What reading a key does to its idle time, which `clean` uses to find keys that no program needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleTimes {
    /// The server has CLIENT NO-TOUCH.
    Kept,
    Reset,
}

impl Master {
    pub(crate) async fn new(store: Store) -> Master {
        let info = store.run::<String>(cmd("INFO").arg("server")).await.unwrap_or_default();
        let kept = can_read_without_touching(&store, &info).await;
        let idle_times = if kept { IdleTimes::Kept } else { IdleTimes::Reset };
        let clock_ahead_ms = clock_ahead_ms(&store).await.unwrap_or(0);
        Master { store, idle_times, field_ttls: has_field_ttls(&info), clock_ahead_ms }
    }

    /// Whether the fields of a hash can have a TTL.
    pub(crate) fn has_field_ttls(&self) -> bool {
        self.field_ttls
    }

    /// The time by the server's clock, which is also in the ids of streams.
    pub(crate) fn now_ms(&self) -> u64 {
        unix_ms().saturating_add_signed(self.clock_ahead_ms)
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn idle_times(&self) -> IdleTimes {
        self.idle_times
    }
}

/// Redis 7.2 and Valkey have CLIENT NO-TOUCH; an ACL may forbid it.
async fn can_read_without_touching(store: &Store, info: &str) -> bool {
    if version(info, "redis_version:").is_none_or(|version| version < (7, 2)) {
        return false;
    }
    store.run::<String>(cmd("CLIENT").arg("NO-TOUCH").arg("OFF")).await.is_ok()
}

/// Redis 7.4 and Valkey 9 have HPTTL. Valkey says that it is compatible with Redis 7.2.
fn has_field_ttls(info: &str) -> bool {
    let valkey = version(info, "valkey_version:");
    let redis = version(info, "redis_version:").filter(|_| valkey.is_none());
    redis.is_some_and(|version| version >= (7, 4)) || valkey.is_some_and(|version| version >= (9, 0))
}

/// `None` if an ACL forbids TIME.
async fn clock_ahead_ms(store: &Store) -> Option<i64> {
    let (seconds, micros): (u64, u64) = store.run(cmd("TIME")).await.ok()?;
    let server_ms = seconds.saturating_mul(1_000).saturating_add(micros / 1_000);
    server_ms.checked_signed_diff(unix_ms())
}

/// The version in a line of INFO: that of the server, or of the Redis that it is compatible with.
fn version(info: &str, line: &str) -> Option<(u32, u32)> {
    let version = info.lines().find_map(|text| text.strip_prefix(line))?;
    let mut numbers = version.trim().split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_compared_by_number() {
        let redis = |info: &str| version(info, "redis_version:");
        assert_eq!(redis("a:b\r\nredis_version:7.0.15\r\n"), Some((7, 0)));
        assert!(redis("redis_version:7.10.0\r\n") > Some((7, 2)));
        assert_eq!(redis("hob_version:1.0.0\r\n"), None);
    }

    #[test]
    fn field_ttls_depend_on_the_server() {
        assert!(has_field_ttls("redis_version:7.4.0\r\n"));
        assert!(!has_field_ttls("redis_version:7.2.4\r\n"));
        assert!(has_field_ttls("redis_version:7.2.4\r\nvalkey_version:9.0.0\r\n"));
        assert!(!has_field_ttls("redis_version:7.2.4\r\nvalkey_version:8.1.1\r\n"));
        assert!(!has_field_ttls(""));
    }
}
