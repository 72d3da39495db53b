//! Counters that `INFO` shows and `CONFIG RESETSTAT` resets.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;

use hob_commands::FnvHasher;

/// As in Redis: a script could otherwise invent error codes without end.
const MAX_ERROR_CODES: usize = 128;

#[derive(Debug, Default)]
pub(crate) struct Stats {
    commands: HashMap<&'static str, CommandStats, BuildHasherDefault<FnvHasher>>,
    errors: BTreeMap<String, u64>,
    pub(crate) error_replies: u64,
    pub(crate) rate: Rate,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommandStats {
    pub(crate) calls: u64,
    pub(crate) time_us: u64,
    /// Refused before they ran.
    pub(crate) rejected: u64,
    /// Returned an error.
    pub(crate) failed: u64,
}

impl Stats {
    pub(crate) fn of(&mut self, command: &'static str) -> &mut CommandStats {
        self.commands.entry(command).or_default()
    }

    pub(crate) fn record_error(&mut self, text: &str) {
        self.error_replies += 1;
        let code = text.split(' ').next().unwrap_or_default();
        if let Some(count) = self.errors.get_mut(code) {
            *count += 1;
        } else if self.errors.len() < MAX_ERROR_CODES {
            self.errors.insert(code.to_owned(), 1);
        }
    }

    /// Ordered by name.
    pub(crate) fn commands(&self) -> impl Iterator<Item = (&'static str, CommandStats)> {
        let mut all: Vec<_> = self.commands.iter().map(|(name, stats)| (*name, *stats)).collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all.into_iter()
    }

    pub(crate) fn errors(&self) -> impl Iterator<Item = (&str, u64)> {
        self.errors.iter().map(|(code, count)| (code.as_str(), *count))
    }
}

/// Events per second, measured over the last whole second or longer.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    began_us: u64,
    count_at_begin: u64,
    per_second: u64,
}

impl Rate {
    /// Called with the time and the number of events so far.
    pub(crate) fn update(&mut self, now_us: u64, count: u64) {
        const WINDOW_US: u64 = 1_000_000;
        let elapsed_us = now_us.saturating_sub(self.began_us);
        if elapsed_us >= WINDOW_US {
            let events = count.saturating_sub(self.count_at_begin);
            self.per_second = events.saturating_mul(WINDOW_US) / elapsed_us;
            (self.began_us, self.count_at_begin) = (now_us, count);
        }
    }

    pub(crate) fn per_second(&self) -> u64 {
        self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_measured_over_a_second_or_longer() {
        let mut rate = Rate::default();
        rate.update(10_000_000, 0);
        rate.update(10_500_000, 300);
        assert_eq!(rate.per_second(), 0, "half a second is too short");
        rate.update(11_000_000, 600);
        assert_eq!(rate.per_second(), 600);
        rate.update(21_000_000, 610);
        assert_eq!(rate.per_second(), 1, "an idle time counts");
    }

    #[test]
    fn error_codes_are_bounded() {
        let mut stats = Stats::default();
        for n in 0..1_000 {
            stats.record_error(&format!("CODE{n} text"));
        }
        stats.record_error("CODE0 again");
        assert_eq!(stats.errors().count(), MAX_ERROR_CODES);
        assert_eq!(stats.errors().find(|(code, _)| *code == "CODE0"), Some(("CODE0", 2)));
        assert_eq!(stats.error_replies, 1_001);
    }
}
