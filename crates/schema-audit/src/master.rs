//! One server whose keys are read.

use hob_store::{Store, cmd};

/// A server, and whether reading from it counts as use of a key.
#[derive(Clone, Debug)]
pub(crate) struct Master {
    store: Store,
    idle_times: IdleTimes,
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
        let kept = can_read_without_touching(&store).await;
        let idle_times = if kept { IdleTimes::Kept } else { IdleTimes::Reset };
        Master { store, idle_times }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn idle_times(&self) -> IdleTimes {
        self.idle_times
    }
}

/// Redis 7.2 and Valkey have CLIENT NO-TOUCH; an ACL may forbid it.
async fn can_read_without_touching(store: &Store) -> bool {
    let Ok(info) = store.run::<String>(cmd("INFO").arg("server")).await else {
        return false;
    };
    if version(&info).is_none_or(|version| version < (7, 2)) {
        return false;
    }
    store.run::<String>(cmd("CLIENT").arg("NO-TOUCH").arg("OFF")).await.is_ok()
}

/// The version of Redis that a server says it is compatible with.
fn version(info: &str) -> Option<(u32, u32)> {
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"))?;
    let mut numbers = version.trim().split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_compared_by_number() {
        assert_eq!(version("a:b\r\nredis_version:7.0.15\r\n"), Some((7, 0)));
        assert!(version("redis_version:7.10.0\r\n") > Some((7, 2)));
        assert_eq!(version("hob_version:1.0.0\r\n"), None);
    }
}
