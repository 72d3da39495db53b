//! `INCRBYFLOAT` and `HINCRBYFLOAT` add x87 long doubles. Doubles would give other digits than Redis for 10.5 + 0.1, so
//! the 80-bit sum is computed in software and formatted as in Redis: `%.17Lf` without trailing zeros.

use rustc_apfloat::ieee::{Double, X87DoubleExtended};
use rustc_apfloat::{Float, FloatConvert, Round, Status};

use crate::number::trim_zeros;
use crate::reply::{CommandResult, Failure};

#[derive(Clone, Copy, Debug)]
pub(crate) struct LongDouble(X87DoubleExtended);

/// Longer texts are refused, as in Redis.
const MAX_TEXT_BYTES: usize = 5 * 1024;

impl LongDouble {
    pub(crate) const ZERO: LongDouble = LongDouble(X87DoubleExtended::ZERO);

    pub(crate) fn read(text: &[u8]) -> Option<LongDouble> {
        if text.len() >= MAX_TEXT_BYTES {
            return None;
        }
        let text = std::str::from_utf8(text).ok()?;
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        if unsigned.eq_ignore_ascii_case("inf") || unsigned.eq_ignore_ascii_case("infinity") {
            let infinity = X87DoubleExtended::INFINITY;
            return Some(LongDouble(if text.starts_with('-') { -infinity } else { infinity }));
        }
        // Rust's decimal syntax is allowed; hexadecimal floats are not in the subset.
        unsigned.parse::<f64>().ok().filter(|value| !value.is_nan())?;
        let parsed = X87DoubleExtended::from_str_r(text, Round::NearestTiesToEven).ok()?;
        let lost =
            parsed.status.intersects(Status::OVERFLOW) || (parsed.value.is_zero() && !spells_zero(unsigned));
        (!lost).then_some(LongDouble(parsed.value))
    }

    /// The sum, or Redis's error if it is not finite.
    pub(crate) fn plus(self, other: LongDouble) -> CommandResult<LongDouble> {
        let sum = (self.0 + other.0).value;
        if sum.is_finite() { Ok(LongDouble(sum)) } else { Err(Failure::NOT_FINITE) }
    }

    /// The nearest double.
    pub(crate) fn to_f64(self) -> f64 {
        let double: Double = self.0.convert(&mut false).value;
        f64::from_bits(double.to_bits() as u64)
    }

    pub(crate) fn is_finite(self) -> bool {
        self.0.is_finite()
    }

    pub(crate) fn write(self) -> String {
        let bits = self.0.to_bits();
        let mantissa = (bits & u128::from(u64::MAX)) as u64;
        let biased = ((bits >> 64) & 0x7fff) as i32;
        let exponent = biased.max(1) - 16383 - 63;
        let digits = if exponent >= 0 {
            shifted_digits(mantissa, exponent.unsigned_abs())
        } else {
            let scaled = divide_rounding(u128::from(mantissa) * 10u128.pow(17), exponent.unsigned_abs());
            let text = format!("{scaled:018}");
            let (whole, fraction) = text.split_at(text.len() - 17);
            trim_zeros(&format!("{whole}.{fraction}")).to_owned()
        };
        if self.0.is_negative() && digits != "0" { format!("-{digits}") } else { digits }
    }
}

fn spells_zero(unsigned: &str) -> bool {
    let mantissa = unsigned.split(['e', 'E']).next().unwrap_or_default();
    !mantissa.bytes().any(|byte| (b'1'..=b'9').contains(&byte))
}

/// `value / 2^shift`, rounded half to even.
fn divide_rounding(value: u128, shift: u32) -> u128 {
    if shift >= 128 {
        return 0;
    }
    let quotient = value >> shift;
    let rest = value - (quotient << shift);
    let half = 1u128 << (shift - 1);
    if rest > half || (rest == half && quotient & 1 == 1) { quotient + 1 } else { quotient }
}

/// The decimal digits of `mantissa × 2^shift`.
fn shifted_digits(mantissa: u64, shift: u32) -> String {
    const LIMB: u64 = 1_000_000_000;
    let mut limbs = vec![mantissa % LIMB, mantissa / LIMB % LIMB, mantissa / LIMB / LIMB];
    let mut left = shift;
    while left > 0 {
        let step = left.min(32);
        let mut carry = 0;
        for limb in &mut limbs {
            let value = (*limb << step) + carry;
            *limb = value % LIMB;
            carry = value / LIMB;
        }
        while carry > 0 {
            limbs.push(carry % LIMB);
            carry /= LIMB;
        }
        left -= step;
    }
    let text: String = limbs.iter().rev().map(|limb| format!("{limb:09}")).collect();
    let trimmed = text.trim_start_matches('0');
    if trimmed.is_empty() { "0".into() } else { trimmed.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(a: &str, b: &str) -> String {
        let read = |text: &str| LongDouble::read(text.as_bytes()).unwrap();
        read(a).plus(read(b)).unwrap().write()
    }

    /// Replies of a real `INCRBYFLOAT`.
    #[test]
    fn sums_are_formatted_as_in_redis() {
        assert_eq!(sum("10.5", "0.1"), "10.6");
        assert_eq!(sum("5.0e3", "200"), "5200");
        assert_eq!(sum("3", "-3"), "0");
        assert_eq!(sum("0", "1e-20"), "0");
        assert_eq!(sum("0", "0.1"), "0.1");
        assert_eq!(sum("-5", "0.25"), "-4.75");
        assert_eq!(sum("1e20", "1"), "100000000000000000000");
        assert_eq!(sum("18446744073709551615", "0"), "18446744073709551615");
    }

    #[test]
    fn invalid_numbers_are_refused() {
        for text in ["", "abc", "1 ", "nan", "0x10", "1e99999", "1e-99999", "."] {
            assert!(LongDouble::read(text.as_bytes()).is_none(), "{text}");
        }
        assert!(LongDouble::read(b"inf").unwrap().plus(LongDouble::ZERO).is_err());
    }
}
