//! Parses and formats durations (`"1h"`, `"1h 30m"`, `"250ms"`) and sizes (`"4 KiB"`).

use std::time::Duration;

const DURATION_UNITS: [(&str, u64); 6] =
    [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

const SIZE_UNITS: [(&str, u64); 9] = [
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("k", 1 << 10),
    ("m", 1 << 20),
];

/// A hundred years: longer than any useful TTL, and far from overflow.
const MAX_DURATION_MS: u64 = 100 * 366 * 86_400_000;

/// Reads `"90s"`, `"1h 30m"`, `"2 d"`; `None` when it is not a positive duration.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut total_ms = 0u64;
    for (number, unit) in quantities(text)? {
        let (_, unit_ms) = DURATION_UNITS.iter().find(|(name, _)| *name == unit)?;
        total_ms = total_ms.checked_add(number.checked_mul(*unit_ms)?)?;
    }
    (1..=MAX_DURATION_MS).contains(&total_ms).then(|| Duration::from_millis(total_ms))
}

/// Reads `"4096"`, `"4 KiB"`, `"1MB"`.
pub fn parse_size(text: &str) -> Option<u64> {
    if let Ok(bytes) = text.trim().parse() {
        return Some(bytes);
    }
    let quantities = quantities(&text.to_ascii_lowercase())?;
    let [(number, unit)] = quantities.as_slice() else {
        return None;
    };
    let (_, unit_bytes) = SIZE_UNITS.iter().find(|(name, _)| name == unit)?;
    number.checked_mul(*unit_bytes)
}

/// The shortest form that [`parse_duration`] reads back: `1h 30m`, `5s`, `250ms`.
pub fn format_duration(duration: Duration) -> String {
    let mut left_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if left_ms == 0 {
        return "0s".to_owned();
    }
    let mut words = Vec::new();
    for (unit, unit_ms) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        let count = left_ms / unit_ms;
        left_ms %= unit_ms;
        if count > 0 {
            words.push(format!("{count}{unit}"));
        }
    }
    // 25h and 36h, not days and hours.
    if words.len() == 2 && words[0] == "1d" && words[1].ends_with('h') {
        return format!("{}h", duration.as_secs() / 3_600);
    }
    words.join(" ")
}

/// A rounded duration in at most two units: `13h 49m`.
pub(crate) fn format_about(duration: Duration) -> String {
    let text = format_duration(duration);
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// `512 B`, `1.5 KiB`, `12 MiB`.
pub fn format_size(bytes: u64) -> String {
    let mut value = bytes;
    let mut tenths = 0;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024 {
            break;
        }
        tenths = value % 1024 * 10 / 1024;
        value /= 1024;
        unit = next;
    }
    if tenths == 0 || value >= 10 { format!("{value} {unit}") } else { format!("{value}.{tenths} {unit}") }
}

/// `1234567` as `1,234,567`.
pub fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Splits `1h 30m` into numbers with their units; every number needs one.
fn quantities(text: &str) -> Option<Vec<(u64, String)>> {
    let mut quantities = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        if digits == 0 || letters == 0 {
            return None;
        }
        let (unit, left) = after.split_at(letters);
        quantities.push((number.parse().ok()?, unit.to_owned()));
        rest = left.trim_start();
    }
    (!quantities.is_empty()).then_some(quantities)
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
    fn a_formatted_duration_parses_to_itself() {
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
