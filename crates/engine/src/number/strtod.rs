//! Reads the number at the beginning of a text, as C's `strtod` does.

use rustc_apfloat::ieee::Double;
use rustc_apfloat::{Float, Round};

/// The number at the beginning of `text` and its length, or `None` if it does not begin with a number.
pub(crate) fn strtod(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let (magnitude, length) = unsigned(&text[sign..])?;
    let negative = text[0] == b'-';
    Some((if negative { -magnitude } else { magnitude }, sign + length))
}

fn unsigned(text: &[u8]) -> Option<(f64, usize)> {
    let starts_with =
        |word: &[u8]| text.get(..word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word));
    if starts_with(b"infinity") {
        return Some((f64::INFINITY, 8));
    }
    if starts_with(b"inf") {
        return Some((f64::INFINITY, 3));
    }
    if starts_with(b"nan") {
        return Some((f64::NAN, 3 + nan_payload(&text[3..])));
    }
    if starts_with(b"0x")
        && let Some((value, length)) = hexadecimal(&text[2..])
    {
        return Some((value, 2 + length));
    }
    let mantissa = mantissa(text, u8::is_ascii_digit)?;
    let length = mantissa + exponent(&text[mantissa..], b'e');
    let value = std::str::from_utf8(&text[..length]).ok()?.parse().ok()?;
    Some((value, length))
}

/// The length of `(letters)` after `nan`.
fn nan_payload(text: &[u8]) -> usize {
    let is_payload = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let Some((b'(', rest)) = text.split_first() else { return 0 };
    let length = rest.iter().take_while(|byte| is_payload(byte)).count();
    if rest.get(length) == Some(&b')') { length + 2 } else { 0 }
}

/// The length of digits with at most one point; `None` without a digit.
fn mantissa(text: &[u8], is_digit: fn(&u8) -> bool) -> Option<usize> {
    let digits = |text: &[u8]| text.iter().take_while(|byte| is_digit(byte)).count();
    let whole = digits(text);
    let fraction = match text.get(whole) {
        Some(b'.') => Some(digits(&text[whole + 1..])),
        _ => None,
    };
    match (whole, fraction) {
        (0, None | Some(0)) => None,
        (whole, None) => Some(whole),
        (whole, Some(fraction)) => Some(whole + 1 + fraction),
    }
}

/// The length of an exponent, or 0 if there is none.
fn exponent(text: &[u8], letter: u8) -> usize {
    if !text.first().is_some_and(|byte| byte.eq_ignore_ascii_case(&letter)) {
        return 0;
    }
    let sign = usize::from(matches!(text.get(1), Some(b'+' | b'-')));
    let digits = text[1 + sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 { 0 } else { 1 + sign + digits }
}

/// The number after `0x`.
fn hexadecimal(text: &[u8]) -> Option<(f64, usize)> {
    let mantissa = mantissa(text, u8::is_ascii_hexdigit)?;
    let exponent = exponent(&text[mantissa..], b'p');
    let length = mantissa + exponent;
    let digits = std::str::from_utf8(&text[..length]).ok()?;
    // The parser requires an exponent.
    let literal = format!("0x{digits}{}", if exponent == 0 { "p0" } else { "" });
    let value = Double::from_str_r(&literal, Round::NearestTiesToEven).ok()?.value;
    Some((f64::from_bits(u64::try_from(value.to_bits()).ok()?), length))
}

#[cfg(test)]
mod tests {
    use super::strtod;

    #[test]
    fn longest_number_at_the_beginning_is_read() {
        for (text, value, length) in [
            ("1", 1.0, 1),
            ("-1.5e3,", -1500.0, 6),
            ("1e", 1.0, 1),
            ("1e+", 1.0, 1),
            ("1.", 1.0, 2),
            (".5x", 0.5, 2),
            ("+7", 7.0, 2),
            ("0x10", 16.0, 4),
            ("0x1.8p1", 3.0, 7),
            ("0x", 0.0, 1),
            ("0xg", 0.0, 1),
            ("0x1p", 1.0, 3),
            ("-Infinity]", f64::NEG_INFINITY, 9),
            ("infinit", f64::INFINITY, 3),
            ("1e999", f64::INFINITY, 5),
            ("1e-999", 0.0, 6),
        ] {
            assert_eq!(strtod(text.as_bytes()), Some((value, length)), "{text}");
        }
        for text in ["", "-", ".", "e5", "+e", "-.e1", "x"] {
            assert_eq!(strtod(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn nan_may_have_a_payload() {
        for (text, length) in [("nan", 3), ("NaN(a1_)", 8), ("nan(a", 3), ("nan()", 5), ("nano", 3)] {
            let (value, read) = strtod(text.as_bytes()).unwrap();
            assert!(value.is_nan(), "{text}");
            assert_eq!(read, length, "{text}");
        }
    }
}
