//! Sizes and counts as people write them: `512`, `10MB`, `4 KiB`; `1,234,567`.

use crate::quantity::{self, BadQuantity};

/// In lower case. `k`, `m` and `g` are powers of 1024.
const UNITS: [(&str, u64); 12] = [
    ("b", 1),
    ("k", 1 << 10),
    ("kb", 1_000),
    ("kib", 1 << 10),
    ("m", 1 << 20),
    ("mb", 1_000_000),
    ("mib", 1 << 20),
    ("g", 1 << 30),
    ("gb", 1_000_000_000),
    ("gib", 1 << 30),
    ("tb", 1_000_000_000_000),
    ("tib", 1 << 40),
];

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a size: {reason}; write a whole number, optionally with a unit, such as \"4096\", \"10MB\" or \"4 KiB\""
)]
pub struct SizeError {
    text: String,
    reason: &'static str,
}

/// Reads `4096`, `512 B`, `10MB` (10,000,000) and `4 KiB` (4,096), in upper or lower case. The space is optional.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    parse(text).map_err(|reason| SizeError { text: text.to_owned(), reason })
}

fn parse(text: &str) -> Result<u64, &'static str> {
    let (number, unit) = match quantity::parse(text) {
        Ok(quantities) => match quantities[..] {
            [quantity] => quantity,
            _ => return Err("it contains several numbers"),
        },
        Err(BadQuantity::NoUnit(number)) if number == text.trim() => {
            return number.parse().map_err(|_| "it is too large");
        }
        Err(BadQuantity::Empty) => return Err("it is empty"),
        Err(BadQuantity::NoUnit(_) | BadQuantity::NotANumber) => return Err("a whole number is expected"),
        Err(BadQuantity::TooLarge) => return Err("it is too large"),
    };
    let (_, unit_bytes) =
        UNITS.iter().find(|(known, _)| unit.eq_ignore_ascii_case(known)).ok_or("its unit is unknown")?;
    number.checked_mul(*unit_bytes).ok_or("it is too large")
}

/// Prints bytes with at most one decimal: `512 B`, `1.5 KiB`, `12 MiB`.
#[must_use]
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

/// Prints `1234567` as `1,234,567`.
#[must_use]
pub fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            (" 4096 ", 4096),
            ("512B", 512),
            ("512 b", 512),
            ("4KiB", 4096),
            ("4 KiB", 4096),
            ("4k", 4096),
            ("4kb", 4000),
            ("10MB", 10_000_000),
            ("10MiB", 10 << 20),
            ("10m", 10 << 20),
            ("2GB", 2_000_000_000),
            ("2GiB", 2 << 30),
            ("2g", 2 << 30),
            ("1TB", 1_000_000_000_000),
            ("1tib", 1 << 40),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text:?}");
        }
    }

    #[test]
    fn other_text_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "it is empty"),
            ("lots", "a whole number is expected"),
            ("-1", "a whole number is expected"),
            ("1.5MB", "a whole number is expected"),
            ("1MB 2", "a whole number is expected"),
            ("1MB 2KB", "it contains several numbers"),
            ("1XB", "its unit is unknown"),
            ("1s", "its unit is unknown"),
            ("99999999999999999999", "it is too large"),
            ("99999999999999999999B", "it is too large"),
            ("20000000TiB", "it is too large"),
        ] {
            let error = parse_size(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} is not a size: {reason};")), "{error}");
        }
    }

    #[test]
    fn size_and_count_are_printed_for_people() {
        for (bytes, text) in [
            (0, "0 B"),
            (512, "512 B"),
            (1_024, "1 KiB"),
            (1_536, "1.5 KiB"),
            (12 << 20, "12 MiB"),
            ((12 << 20) + (1 << 19), "12 MiB"),
            (5 << 40, "5 TiB"),
        ] {
            assert_eq!(format_size(bytes), text);
        }
        for (count, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(format_count(count), text);
        }
    }
}
