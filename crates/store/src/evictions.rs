//! Keys that Redis has deleted because its memory was full.
//!
//! Redis evicts single keys, so the marker of a tag does not show it. A server only counts them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use redis::cmd;

use crate::connection::history::field;
use crate::{Error, Result, Store};

/// Finds out whether servers have evicted keys.
#[derive(Debug, Default)]
pub struct Evictions {
    /// How many keys each server had evicted in the last look, by its run id.
    evicted: HashMap<String, u64>,
    /// Whether the caller has yet to handle some.
    unhandled: bool,
    handled_at: Option<Instant>,
}

impl Evictions {
    /// Whether keys were evicted since the first look that the caller has not [handled](Self::handled). `false` for `pause` after it
    /// has handled some: a server that always evicts keys must not keep its clients busy with nothing but repairs.
    pub async fn found(&mut self, store: &Store, pause: Duration) -> Result<bool> {
        let mut servers = HashMap::new();
        for master in store.masters().await? {
            match master.run::<String>(cmd("INFO")).await {
                Ok(info) => servers.extend(read(&info)),
                // A server whose ACL forbids INFO can still be used.
                Err(Error::Refused { code, .. }) if code == "NOPERM" => {}
                Err(error) => return Err(error),
            }
        }
        self.see(servers);
        Ok(self.is_due(pause, Instant::now()))
    }

    /// The caller has restored what was evicted before the last look.
    pub fn handled(&mut self) {
        (self.unhandled, self.handled_at) = (false, Some(Instant::now()));
    }

    /// A server that was restarted has another run id, and what it has lost shows in its history.
    fn see(&mut self, servers: HashMap<String, u64>) {
        let before = |id: &String| self.evicted.get(id).copied().unwrap_or(u64::MAX);
        self.unhandled |= servers.iter().any(|(id, evicted)| *evicted > before(id));
        self.evicted = servers;
    }

    fn is_due(&self, pause: Duration, now: Instant) -> bool {
        self.unhandled && self.handled_at.is_none_or(|handled| now.duration_since(handled) >= pause)
    }
}

/// The run id of a server and the number of keys that it has evicted.
fn read(info: &str) -> Option<(String, u64)> {
    Some((field(info, "run_id")?.to_owned(), field(info, "evicted_keys")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(all: &[(&str, u64)]) -> HashMap<String, u64> {
        all.iter().map(|(id, evicted)| ((*id).to_owned(), *evicted)).collect()
    }

    #[test]
    fn evictions_are_found_until_they_are_handled() {
        let (mut evictions, pause) = (Evictions::default(), Duration::from_secs(9));
        let sees = |evictions: &mut Evictions, all: &[(&str, u64)], seconds: u64| {
            evictions.see(servers(all));
            evictions.is_due(pause, Instant::now() + Duration::from_secs(seconds))
        };
        assert!(!sees(&mut evictions, &[("a", 7)], 0), "they were evicted before the first look");
        assert!(!sees(&mut evictions, &[("a", 7)], 0));
        assert!(sees(&mut evictions, &[("a", 8)], 0));
        assert!(sees(&mut evictions, &[("a", 8)], 0), "not handled yet");
        evictions.handled();
        assert!(!sees(&mut evictions, &[("a", 8)], 60));
        assert!(!sees(&mut evictions, &[("a", 9)], 5), "too soon");
        assert!(sees(&mut evictions, &[("a", 9)], 60));
        evictions.handled();
        assert!(!sees(&mut evictions, &[("b", 70)], 60), "another server is the master");
        assert!(sees(&mut evictions, &[("b", 71), ("c", 3)], 60));
    }

    #[test]
    fn run_id_and_evicted_keys_are_read() {
        let info = "# Server\r\nrun_id:a1\r\n\r\n# Stats\r\nexpired_keys:3\r\nevicted_keys:12\r\n";
        assert_eq!(read(info), Some(("a1".to_owned(), 12)));
        assert_eq!(read(""), None);
    }
}
