//! Durations and sizes in schema files.

use std::time::Duration;

pub use hob_units::{format_count, format_duration, format_size};

/// A hundred years: longer than any useful TTL.
const MAX_DURATION: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Reads `"90s"`, `"1h 30m"`, `"2 d"`; `None` when it is not a positive duration of at most a hundred years.
pub fn parse_duration(text: &str) -> Option<Duration> {
    hob_units::parse_duration(text).ok().filter(|duration| !duration.is_zero() && *duration <= MAX_DURATION)
}

/// Reads `"4096"`, `"4 KiB"`, `"1MB"`.
pub fn parse_size(text: &str) -> Option<u64> {
    hob_units::parse_size(text).ok()
}

/// A rounded duration in at most two units: `13h 49m`.
pub fn format_about(duration: Duration) -> String {
    let text = format_duration(duration);
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, ms) in [("1h", 3_600_000), ("1h 30m", 5_400_000), ("250ms", 250), ("2 d", 172_800_000)] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "1", "h", "0s", "-1s", "1 week", "99999999999999999999s", "400000d", "1.5h"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn formatted_duration_parses_to_itself() {
        for ms in [1, 999, 5_000, 60_000, 5_400_000, 86_400_000, 90_000_000, 90_061_001] {
            let duration = Duration::from_millis(ms);
            assert_eq!(parse_duration(&format_duration(duration)), Some(duration));
        }
        assert_eq!(format_duration(Duration::from_hours(25)), "25h");
    }

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        assert_eq!(parse_size("4 KiB"), Some(4096));
        assert_eq!(parse_size("4kb"), Some(4000));
        assert_eq!(parse_size("17"), Some(17));
        assert_eq!(parse_size("lots"), None);
        assert_eq!(format_size(1536), "1.5 KiB");
        assert_eq!(format_size(512), "512 B");
        assert_eq!(format_count(1_234_567), "1,234,567");
    }
}
