//! A rate limit: an algorithm and one or more windows, validated when it is created.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Products that scripts compute stay below this, so that they are exact as doubles.
const EXACT: u128 = 1 << 52;
/// The maximum limit of algorithms that store every request.
const MAX_LOGGED: u32 = 100_000;

/// How requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// One counter per window; a window starts with the first request (C6). Cheap, but nearly twice the limit can pass
    /// around the boundary between two windows.
    FixedCounter,
    /// The same with a log of the requests (G16).
    FixedLog,
    /// A log of the requests in the window that ends now (G17). Exact, but needs memory for each request.
    SlidingLog,
    /// Two counters, weighted by how much of the previous window still counts. Needs constant memory; assumes that the
    /// requests of the previous window were evenly distributed.
    SlidingWindow,
    /// The generic cell rate algorithm: requests pass at a steady rate, with a burst. Constant memory, exact.
    Gcra,
}

/// At most `limit` requests in any `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// How many requests.
    pub limit: u32,
    /// In how long; whole milliseconds.
    pub period: Duration,
    /// For [`Algorithm::Gcra`]: how many requests may come at once. `None` means as many as the limit.
    pub burst: Option<u32>,
}

/// A rate limit that can be enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    algorithm: Algorithm,
    windows: Vec<Window>,
}

impl Rule {
    /// Checks a rule; the error says what to change.
    pub fn new(algorithm: Algorithm, windows: Vec<Window>) -> Result<Self> {
        let refuse = |reason: String| Err(Error::Misuse(reason));
        if windows.is_empty() || windows.len() > 8 {
            return refuse(format!("a rate limit has 1 to 8 windows, not {}", windows.len()));
        }
        let fixed = matches!(algorithm, Algorithm::FixedCounter | Algorithm::FixedLog);
        if fixed && windows.len() > 1 {
            return refuse(format!(
                "{algorithm} supports only one window; use sliding_window or gcra for several"
            ));
        }
        for (index, window) in windows.iter().enumerate() {
            window.check(algorithm).map_err(Error::Misuse)?;
            if windows[..index].iter().any(|other| other.period == window.period) {
                return refuse(format!("two windows have the same length, {:?}", window.period));
            }
        }
        Ok(Self { algorithm, windows })
    }

    /// How requests are counted.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The windows. A request must fit into all of them.
    #[must_use]
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// The largest cost that can ever pass.
    #[must_use]
    pub fn max_at_once(&self) -> u32 {
        self.windows.iter().map(|window| window.max_at_once(self.algorithm)).min().unwrap_or(0)
    }
}

impl Window {
    /// At most `limit` requests in any `period`.
    #[must_use]
    pub fn new(limit: u32, period: Duration) -> Self {
        Self { limit, period, burst: None }
    }

    /// The same with a burst.
    #[must_use]
    pub fn with_burst(self, burst: u32) -> Self {
        Self { burst: Some(burst), ..self }
    }

    /// How many requests can pass at once.
    #[must_use]
    pub fn max_at_once(&self, algorithm: Algorithm) -> u32 {
        match (algorithm, self.burst) {
            (Algorithm::Gcra, Some(burst)) => burst,
            _ => self.limit,
        }
    }

    pub(crate) fn period_ms(&self) -> u64 {
        u64::try_from(self.period.as_millis()).unwrap_or(u64::MAX)
    }

    /// Requests per microseconds, as a fraction in lowest terms, which keeps the products in the GCRA script small.
    pub(crate) fn rate(&self) -> (u64, u64) {
        let (limit, per_us) =
            (u64::from(self.limit), u64::try_from(self.period.as_micros()).unwrap_or(u64::MAX));
        let divisor = gcd(limit, per_us);
        (limit / divisor, per_us / divisor)
    }

    fn check(&self, algorithm: Algorithm) -> Result<(), String> {
        let at_once = self.max_at_once(algorithm);
        if self.limit == 0 || at_once == 0 {
            return Err("a rate limit must allow at least 1 request".to_owned());
        }
        let whole_ms = self.period.subsec_nanos().is_multiple_of(1_000_000);
        if !whole_ms || self.period.is_zero() || self.period > Duration::from_secs(366 * 86_400) {
            return Err(format!("a period is 1 ms to 366 days in whole milliseconds, not {:?}", self.period));
        }
        match algorithm {
            Algorithm::FixedLog | Algorithm::SlidingLog if self.limit > MAX_LOGGED => Err(format!(
                "{algorithm} stores every request and supports limits up to {MAX_LOGGED}, but the limit is {}; use sliding_window or gcra",
                self.limit
            )),
            Algorithm::SlidingWindow if 3 * u128::from(self.limit) * u128::from(self.period_ms()) > EXACT => {
                Err(format!("{self} is too large to be counted exactly"))
            }
            Algorithm::Gcra if u128::from(at_once) * u128::from(self.rate().1) > EXACT => Err(format!(
                "{self} is too large to be counted exactly; choose a rounder limit or a smaller burst"
            )),
            _ => Ok(()),
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

hob_units::names!(Algorithm {
    FixedCounter = "fixed_counter",
    FixedLog = "fixed_log",
    SlidingLog = "sliding_log",
    SlidingWindow = "sliding_window",
    Gcra = "gcra",
});

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.limit, Period(self.period_ms()))?;
        match self.burst {
            Some(burst) => write!(f, " burst {burst}"),
            None => Ok(()),
        }
    }
}

struct Period(u64);

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, ms) = UNITS.iter().find(|(_, ms)| self.0.is_multiple_of(*ms)).unwrap_or(&UNITS[4]);
        write!(f, "{}{unit}", self.0 / ms)
    }
}

/// Reads `20/1s`, `500/1m burst 50`; units are ms, s, m, h and d.
impl FromStr for Window {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = || Error::Misuse(format!("{text:?} is not a window; write 20/1s or 500/1m burst 50"));
        let (text, burst) = match text.split_once("burst") {
            Some((text, burst)) => (text, Some(burst.trim().parse().map_err(|_| refuse())?)),
            None => (text, None),
        };
        let (limit, period) = text.split_once('/').ok_or_else(refuse)?;
        let period = period.trim();
        let digits = period.find(|c: char| !c.is_ascii_digit()).ok_or_else(refuse)?;
        let (count, unit) = period.split_at(digits);
        let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refuse)?;
        // "/s" is one second.
        let count: u64 = if count.is_empty() { 1 } else { count.parse().map_err(|_| refuse())? };
        let period_ms = count.checked_mul(*unit_ms).ok_or_else(refuse)?;
        let limit = limit.trim().parse().map_err(|_| refuse())?;
        Ok(Self { limit, period: Duration::from_millis(period_ms), burst })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(text: &str) -> Vec<Window> {
        text.split(',').map(|window| window.trim().parse().unwrap()).collect()
    }

    #[test]
    fn windows_are_parsed_and_printed() {
        let read = windows("20/1s, 500/m burst 50, 7/90m, 3/250ms");
        assert_eq!(read[0], Window::new(20, Duration::from_secs(1)));
        assert_eq!(read[1], Window::new(500, Duration::from_secs(60)).with_burst(50));
        assert_eq!(
            read.iter().map(Window::to_string).collect::<Vec<_>>(),
            ["20/1s", "500/1m burst 50", "7/90m", "3/250ms"]
        );
        for text in
            ["20", "20/", "20/s5", "/1s", "20/1y", "20/1s burst x", "-1/1s", "1/99999999999999999999d"]
        {
            assert!(text.parse::<Window>().is_err(), "{text}");
        }
    }

    #[test]
    fn invalid_rule_is_refused_with_a_reason() {
        let refused = |algorithm, text: &str| Rule::new(algorithm, windows(text)).unwrap_err().to_string();
        assert!(refused(Algorithm::FixedCounter, "1/1s,2/2s").contains("one window"));
        assert!(refused(Algorithm::Gcra, "0/1s").contains("at least 1"));
        assert!(
            refused(Algorithm::SlidingLog, "100001/1h")
                .contains("limits up to 100000, but the limit is 100001")
        );
        assert!(refused(Algorithm::Gcra, "999983/1d").contains("rounder"));
        assert!(refused(Algorithm::Gcra, "1/1s, 2/1s").contains("two windows"));
        assert!(refused(Algorithm::Gcra, "1/0s").contains("period"));
        assert!(Rule::new(Algorithm::Gcra, vec![]).is_err());
        assert!(Rule::new(Algorithm::Gcra, windows("1000000/1d")).is_ok());
        assert!(Rule::new(Algorithm::SlidingWindow, windows("10000000/1d")).is_ok());
    }

    #[test]
    fn rate_is_in_lowest_terms() {
        assert_eq!(Window::new(1000, Duration::from_secs(1)).rate(), (1, 1000));
        assert_eq!(Window::new(7, Duration::from_secs(60)).rate(), (7, 60_000_000));
    }
}
