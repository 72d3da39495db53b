//! Durations as people write them: `500ms`, `30s`, `1h 30m`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A duration of whole milliseconds, written with its units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period {
    ms: u64,
}

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no duration: write numbers with units, as in \"500ms\", \"30s\", \"1h 30m\", \"7d\"")]
pub struct BadPeriod(String);

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Period {
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self { ms }
    }

    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self { ms: seconds * 1000 }
    }

    #[must_use]
    pub const fn from_days(days: u64) -> Self {
        Self::from_secs(days * 86_400)
    }

    #[must_use]
    pub const fn get(self) -> Duration {
        Duration::from_millis(self.ms)
    }

    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.ms
    }
}

impl FromStr for Period {
    type Err = BadPeriod;

    fn from_str(text: &str) -> Result<Self, BadPeriod> {
        parse(text).map(Self::from_millis).ok_or_else(|| BadPeriod(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut ms = 0_u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let tail = &rest[digits..];
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (_, factor) = UNITS.iter().find(|(unit, _)| *unit == &tail[..letters])?;
        ms = ms.checked_add(number.checked_mul(*factor)?)?;
        rest = tail[letters..].trim_start();
    }
    Some(ms)
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ms == 0 {
            return f.write_str("0s");
        }
        let mut left = self.ms;
        let mut gap = "";
        for (unit, factor) in UNITS {
            if left >= factor {
                write!(f, "{gap}{}{unit}", left / factor)?;
                left %= factor;
                gap = " ";
            }
        }
        Ok(())
    }
}

as_text!(Period);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_read_as_they_are_written() {
        for (text, ms) in
            [("500ms", 500), ("30s", 30_000), ("1h 30m", 5_400_000), ("7d", 604_800_000), ("0s", 0)]
        {
            let period: Period = text.parse().unwrap();
            assert_eq!((period.as_millis(), period.to_string().as_str()), (ms, text));
        }
        assert_eq!("90s".parse::<Period>().unwrap().to_string(), "1m 30s");
    }

    #[test]
    fn a_number_without_a_unit_is_refused() {
        for text in ["", "30", "s", "1 s", "-1s", "1.5s", "1w", "99999999999999999999s", "300000000000d"] {
            assert!(text.parse::<Period>().is_err(), "{text:?}");
        }
    }
}
