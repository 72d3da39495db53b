//! A duration that is configured.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::duration::{DurationError, format_duration, parse_duration};

/// A duration of whole milliseconds. In a configuration, plan or request it is written with units: `"1h 30m"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period {
    ms: u64,
}

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
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let duration = parse_duration(text)?;
        Ok(Self { ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX) })
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format_duration(self.get()))
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, StrDeserializer};

    use super::*;

    #[test]
    fn period_is_printed_as_it_is_read() {
        for (text, ms) in
            [("500ms", 500), ("30s", 30_000), ("1h 30m", 5_400_000), ("7d", 604_800_000), ("0s", 0)]
        {
            let period: Period = text.parse().unwrap();
            assert_eq!((period.as_millis(), period.to_string().as_str()), (ms, text));
        }
        assert_eq!("90s".parse::<Period>().unwrap().to_string(), "1m 30s");
        assert_eq!(Period::from_days(2), Period::from_secs(172_800));
    }

    #[test]
    fn period_is_deserialized_from_text() {
        let read = |text| {
            let deserializer: StrDeserializer<'_, Error> = IntoDeserializer::into_deserializer(text);
            Period::deserialize(deserializer).map_err(|error| error.to_string())
        };
        assert_eq!(read("15m"), Ok(Period::from_secs(900)));
        assert!(read("15").unwrap_err().starts_with("\"15\" is not a duration: 15 has no unit"));
    }
}
