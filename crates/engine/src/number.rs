//! Numbers as Redis reads and writes them.

mod long_double;
mod strtod;

pub(crate) use long_double::LongDouble;
pub(crate) use strtod::strtod;

use crate::reply::{CommandResult, Failure};

/// Reads an integer strictly: no sign except `-`, no leading zeros or spaces.
pub(crate) fn read_int(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut magnitude: u64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

pub(crate) fn int(text: &[u8]) -> CommandResult<i64> {
    read_int(text).ok_or(Failure::NOT_AN_INTEGER)
}

/// A count that must not be negative.
pub(crate) fn positive(text: &[u8]) -> CommandResult<usize> {
    let count = read_int(text).ok_or(Failure::NOT_POSITIVE)?;
    usize::try_from(count).map_err(|_| Failure::NOT_POSITIVE)
}

/// Reads a score or increment: finite decimals and infinities. Overflow and underflow are refused.
pub(crate) fn read_float(text: &[u8]) -> Option<f64> {
    let value = parse_decimal(text)?;
    let mantissa = text.split(|byte| matches!(byte, b'e' | b'E')).next().unwrap_or(text);
    let overflowed = value.is_infinite() && text.iter().any(u8::is_ascii_digit);
    let underflowed = value == 0.0 && mantissa.iter().any(|byte| (b'1'..=b'9').contains(byte));
    (!overflowed && !underflowed).then_some(value)
}

pub(crate) fn float(text: &[u8]) -> CommandResult<f64> {
    read_float(text).ok_or(Failure::NOT_A_FLOAT)
}

/// Reads a decimal like `strtod`: overflow becomes infinity, underflow zero.
pub(crate) fn parse_decimal(text: &[u8]) -> Option<f64> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!value.is_nan()).then_some(value)
}

/// Formats a double as C's `%.17g`, without loss.
pub(crate) fn write_float(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan".into() } else { "nan".into() };
    }
    // `%.17g` prints every integer below 10^17 in full, and most scores are such integers.
    if value.fract() == 0.0 && value.abs() < 1e17 {
        let negative_zero = value == 0.0 && value.is_sign_negative();
        return if negative_zero { "-0".into() } else { itoa::Buffer::new().format(value as i64).into() };
    }
    write_general(value, 17)
}

/// Formats a finite double as C's `%.*g` with this number of significant digits, at least one.
pub(crate) fn write_general(value: f64, digits: usize) -> String {
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("`{:e}` always writes an exponent");
    let exponent: i32 = exponent.parse().expect("`{:e}` writes an integer exponent");
    if (-4..digits as i32).contains(&exponent) {
        let decimals = usize::try_from(digits as i32 - 1 - exponent).unwrap_or(0);
        return trim_zeros(&format!("{value:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim_zeros(mantissa), exponent.abs())
}

/// Removes trailing zeros of a decimal fraction, and the point if nothing follows.
pub(crate) fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_strictly() {
        for (text, value) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("99999999999999999999", None),
            ("-0", None),
            ("01", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("", None),
            ("-", None),
            ("1.0", None),
        ] {
            assert_eq!(read_int(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn doubles_keep_seventeen_digits() {
        for (value, text) in [
            (0.1, "0.10000000000000001"),
            (3.0, "3"),
            (0.0, "0"),
            (-0.0, "-0"),
            (-1_700_000_000_000_000.0, "-1700000000000000"),
            (99_999_999_999_999_984.0, "99999999999999984"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.5e300, "1.5000000000000001e+300"),
            (1e-5, "1.0000000000000001e-05"),
            (0.0001, "0.0001"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(write_float(value), text);
        }
    }

    #[test]
    fn digits_of_a_double_can_be_limited() {
        for (value, digits, text) in [
            (0.1, 14, "0.1"),
            (100.0, 14, "100"),
            (1e14, 14, "1e+14"),
            (99_999_999_999_999.0, 14, "99999999999999"),
            (99_999_999_999_999.9, 14, "1e+14"),
            (1.0 / 3.0, 3, "0.333"),
            (123_456.0, 3, "1.23e+05"),
            (-0.0, 14, "-0"),
            (0.000_012, 14, "1.2e-05"),
            (9.5, 1, "1e+01"),
        ] {
            assert_eq!(write_general(value, digits), text);
        }
    }

    #[test]
    fn floats_that_do_not_fit_are_refused() {
        assert_eq!(read_float(b"1e400"), None);
        assert_eq!(read_float(b"1e-400"), None);
        assert_eq!(read_float(b"nan"), None);
        assert_eq!(read_float(b""), None);
        assert_eq!(read_float(b" 1"), None);
        assert_eq!(read_float(b"-inf"), Some(f64::NEG_INFINITY));
        assert_eq!(read_float(b"0e-400"), Some(0.0));
    }
}
