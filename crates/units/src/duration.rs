//! Durations as people write them: `500ms`, `30s`, `15m`, `2h`, `7d`, `1h 30m`.

use std::time::Duration;

use crate::quantity::{self, BadQuantity};

/// In the order in which a duration is printed.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a duration: {reason}; write whole numbers with ms, s, m, h or d, such as \"30s\" or \"1h 30m\""
)]
pub struct DurationError {
    text: String,
    reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Reason {
    #[error("it is empty")]
    Empty,
    #[error("{0} has no unit")]
    NoUnit(String),
    #[error("unknown unit {0:?}")]
    UnknownUnit(String),
    #[error("a whole number is expected")]
    NotANumber,
    #[error("it exceeds the maximum")]
    TooLong,
}

impl From<BadQuantity> for Reason {
    fn from(bad: BadQuantity) -> Self {
        match bad {
            BadQuantity::Empty => Self::Empty,
            BadQuantity::NoUnit(number) => Self::NoUnit(number),
            BadQuantity::NotANumber => Self::NotANumber,
            BadQuantity::TooLarge => Self::TooLong,
        }
    }
}

/// Reads `500ms`, `30s`, `15m` or `15min`, `2h`, `7d`, and sums such as `1h30m`. Spaces are optional. `0s` is allowed.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let millis = parse(text).map_err(|reason| DurationError { text: text.to_owned(), reason })?;
    Ok(Duration::from_millis(millis))
}

fn parse(text: &str) -> Result<u64, Reason> {
    let mut total_ms = 0_u64;
    for (number, unit) in quantity::parse(text)? {
        let name = if unit == "min" { "m" } else { unit };
        let unit_ms = UNITS.iter().find(|(known, _)| *known == name).map(|(_, unit_ms)| *unit_ms);
        let unit_ms = unit_ms.ok_or_else(|| Reason::UnknownUnit(unit.to_owned()))?;
        let millis = number.checked_mul(unit_ms).ok_or(Reason::TooLong)?;
        total_ms = total_ms.checked_add(millis).ok_or(Reason::TooLong)?;
    }
    Ok(total_ms)
}

/// Prints whole milliseconds with the largest units first, so that [`parse_duration`] reads them back: `1h 30m`, `5s`.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let mut left_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if left_ms == 0 {
        return "0s".to_owned();
    }
    let hours = left_ms / 3_600_000;
    if (25..48).contains(&hours) && left_ms.is_multiple_of(3_600_000) {
        // Below two days, whole hours are easier to read as `36h` than as `1d 12h`.
        return format!("{hours}h");
    }
    let mut parts = Vec::new();
    for (unit, unit_ms) in UNITS {
        if left_ms >= unit_ms {
            parts.push(format!("{}{unit}", left_ms / unit_ms));
            left_ms %= unit_ms;
        }
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_is_read() {
        for (text, ms) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("15m", 900_000),
            ("15min", 900_000),
            ("2h", 7_200_000),
            ("7d", 604_800_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("1 h 30 m", 5_400_000),
            ("  2 d ", 172_800_000),
            ("1d 2h 3m 4s 5ms", 93_784_005),
            ("30m 1h", 5_400_000),
            ("90s", 90_000),
            ("0s", 0),
            ("18446744073709551615ms", u64::MAX),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text:?}");
        }
    }

    #[test]
    fn other_text_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "it is empty"),
            ("  ", "it is empty"),
            ("30", "30 has no unit"),
            ("1h 30", "30 has no unit"),
            ("s", "a whole number is expected"),
            ("-1s", "a whole number is expected"),
            ("+1s", "a whole number is expected"),
            ("1.5h", "a whole number is expected"),
            ("1,5h", "a whole number is expected"),
            ("1h, 30m", "a whole number is expected"),
            ("1w", "unknown unit \"w\""),
            ("1 week", "unknown unit \"week\""),
            ("1S", "unknown unit \"S\""),
            ("5µs", "unknown unit \"µs\""),
            ("PT1H", "a whole number is expected"),
            ("99999999999999999999s", "it exceeds the maximum"),
            ("300000000000d", "it exceeds the maximum"),
            ("18446744073709551615ms 1ms", "it exceeds the maximum"),
        ] {
            let error = parse_duration(text).unwrap_err().to_string();
            let expected = format!(
                "{text:?} is not a duration: {reason}; \
                 write whole numbers with ms, s, m, h or d, such as \"30s\" or \"1h 30m\""
            );
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn duration_is_printed_with_the_largest_units_first() {
        for (ms, text) in [
            (0, "0s"),
            (250, "250ms"),
            (5_000, "5s"),
            (90_000, "1m 30s"),
            (5_400_000, "1h 30m"),
            (86_400_000, "1d"),
            (90_000_000, "25h"),
            (129_600_000, "36h"),
            (129_660_000, "1d 12h 1m"),
            (172_800_000, "2d"),
            (604_800_000, "7d"),
        ] {
            assert_eq!(format_duration(Duration::from_millis(ms)), text);
        }
        assert_eq!(format_duration(Duration::from_micros(1_999)), "1ms");
    }

    proptest! {
        #[test]
        fn printed_duration_is_read_back(ms: u64) {
            let duration = Duration::from_millis(ms);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn parsing_any_text_does_not_panic(text: String) {
            let _ = parse_duration(&text);
        }
    }
}
