//! Limits of a quota: rolling windows and a buffer.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hob_store::limit::Window;

use crate::error::{Error, Result};
use crate::keys::Quota as QuotaId;

/// Maximum calls in a window: the store keeps an entry per call.
pub(crate) const MAX_CALLS: u32 = 100_000;
const MAX_WINDOWS: usize = 8;

/// The name of a quota.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QuotaName(QuotaId);

/// Every call must fit all windows. The buffer stays unused in each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    windows: Vec<Window>,
    buffer: u32,
}

impl QuotaName {
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    pub(crate) fn id(&self) -> &QuotaId {
        &self.0
    }
}

impl Limits {
    /// Parses windows such as `"5/1m, 50/1h, 125/1d"`.
    pub fn parse(windows: &str, buffer: u32) -> Result<Self> {
        let read = |window: &str| {
            let invalid =
                |_| Error::invalid("windows", format!("{window:?} is not a window; write 5/1m or 5000/1h"));
            window.parse::<Window>().map_err(invalid)
        };
        let windows: Result<Vec<Window>> = windows.split(',').map(str::trim).map(read).collect();
        Self::new(windows?, buffer)
    }

    pub fn new(mut windows: Vec<Window>, buffer: u32) -> Result<Self> {
        windows.sort_by_key(|window| window.period);
        if windows.is_empty() || windows.len() > MAX_WINDOWS {
            return Err(Error::invalid("windows", format!("a quota has 1 to {MAX_WINDOWS} windows")));
        }
        if windows.windows(2).any(|pair| pair[0].period == pair[1].period) {
            return Err(Error::invalid("windows", "two windows have the same length"));
        }
        for window in &windows {
            if window.burst.is_some() {
                return Err(Error::invalid("windows", "a quota has no burst; add a shorter window instead"));
            }
            if !(1..=MAX_CALLS).contains(&window.limit) {
                return Err(Error::invalid(
                    "windows",
                    format!("{window}: a window must have 1 to {MAX_CALLS} calls"),
                ));
            }
            let year = Duration::from_secs(366 * 86_400);
            if window.period < Duration::from_secs(1) || window.period > year {
                return Err(Error::invalid(
                    "windows",
                    format!("{window}: a window lasts 1 second to 366 days"),
                ));
            }
            if buffer >= window.limit {
                return Err(Error::invalid("buffer", format!("must be less than the limit of {window}")));
            }
        }
        Ok(Self { windows, buffer })
    }

    /// Shortest first, without the buffer subtracted.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    pub fn buffer(&self) -> u32 {
        self.buffer
    }

    /// The limit of a window minus the buffer.
    pub fn usable(&self, window: &Window) -> u32 {
        window.limit - self.buffer
    }

    /// Maximum calls in one reservation.
    pub fn max_calls_per_reservation(&self) -> u32 {
        self.windows.iter().map(|window| self.usable(window)).min().unwrap_or(0)
    }

    pub fn longest_window(&self) -> Duration {
        self.windows.iter().map(|window| window.period).max().unwrap_or_default()
    }

    /// Sustained calls per second.
    pub fn sustained_per_second(&self) -> f64 {
        let rate = |window: &Window| f64::from(self.usable(window)) / window.period.as_secs_f64();
        self.windows.iter().map(rate).fold(f64::INFINITY, f64::min)
    }
}

impl FromStr for QuotaName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !text.bytes().all(allowed) {
            return Err(Error::invalid("quota", "a quota name has letters, digits, '.', '_' and '-'"));
        }
        QuotaId::new(text).map(Self).map_err(|error| Error::invalid("quota", error))
    }
}

impl fmt::Display for QuotaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `5/1m, 50/1h`
impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, window) in self.windows.iter().enumerate() {
            write!(f, "{}{window}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

hob_database::column!(QuotaName as text);

#[cfg(test)]
mod tests {
    use super::*;

    /// P8
    #[test]
    fn buffer_stays_unused() {
        let limits = Limits::parse("5000/1h", 25).unwrap();
        assert_eq!(limits.max_calls_per_reservation(), 4975);
        let limits = Limits::parse("125/1d, 5/1m, 50/1h", 0).unwrap();
        assert_eq!(
            (limits.to_string().as_str(), limits.max_calls_per_reservation()),
            ("5/1m, 50/1h, 125/1d", 5)
        );
    }

    #[test]
    fn invalid_limits_are_rejected_by_field() {
        let field = |windows, buffer| match Limits::parse(windows, buffer) {
            Err(Error::Invalid { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        assert_eq!(field("5/1m, 50/1h", 5), "buffer");
        for windows in ["", "0/1h", "5/1m, 6/60s", "5/1m burst 3", "100001/1h", "5/10ms", "many"] {
            assert_eq!(field(windows, 0), "windows", "{windows}");
        }
    }

    /// A hint must not name something that quotas do not have.
    #[test]
    fn hint_is_a_window_that_quotas_accept() {
        let error = Limits::parse("many", 0).unwrap_err().to_string();
        assert_eq!(error, "windows: \"many\" is not a window; write 5/1m or 5000/1h");
        Limits::parse("5/1m, 5000/1h", 0).unwrap();
    }

    #[test]
    fn ambiguous_name_is_rejected() {
        for text in ["", "a:b", "a b", "{a}", "a/b"] {
            assert!(text.parse::<QuotaName>().is_err(), "{text:?}");
        }
    }
}
