//! Numbers for people: short, with a unit, rounded.

use std::borrow::Borrow;
use std::fmt::{self, Display};
use std::time::Duration;

use askama::filters::HtmlSafe;

/// A no-break space between a number and its unit.
const SPACE: char = '\u{a0}';

/// Larger values are clamped, because charts calculate with them.
pub(crate) const MAX_VALUE: f64 = 1e15;

/// What a number counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    #[default]
    Count,
    PerSecond,
    Millis,
    Bytes,
    BytesPerSecond,
    /// A fraction between 0 and 1, shown in percent.
    Ratio,
}

/// A number with its unit: `1.2 k`, `34 ms`, `5.1 MiB`, `99.95 %`. NaN and infinity are shown as a dash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity {
    value: f64,
    unit: Unit,
}

/// One magnitude of a unit, such as thousands, mebibytes or minutes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Magnitude {
    pub(crate) size: f64,
    suffix: &'static str,
}

const fn magnitude(size: f64, suffix: &'static str) -> Magnitude {
    Magnitude { size, suffix }
}

const COUNT: &[Magnitude] = &[
    magnitude(1.0, ""),
    magnitude(1e3, "k"),
    magnitude(1e6, "M"),
    magnitude(1e9, "G"),
    magnitude(1e12, "T"),
];
const PER_SECOND: &[Magnitude] = &[
    magnitude(1.0, "/s"),
    magnitude(1e3, "k/s"),
    magnitude(1e6, "M/s"),
    magnitude(1e9, "G/s"),
    magnitude(1e12, "T/s"),
];
const MILLIS: &[Magnitude] = &[
    magnitude(1e-3, "µs"),
    magnitude(1.0, "ms"),
    magnitude(1e3, "s"),
    magnitude(60e3, "min"),
    magnitude(3_600e3, "h"),
    magnitude(86_400e3, "d"),
];
const KIB: f64 = 1024.0;
const BYTES: &[Magnitude] = &[
    magnitude(1.0, "B"),
    magnitude(KIB, "KiB"),
    magnitude(KIB * KIB, "MiB"),
    magnitude(KIB * KIB * KIB, "GiB"),
    magnitude(KIB * KIB * KIB * KIB, "TiB"),
];
const BYTES_PER_SECOND: &[Magnitude] = &[
    magnitude(1.0, "B/s"),
    magnitude(KIB, "KiB/s"),
    magnitude(KIB * KIB, "MiB/s"),
    magnitude(KIB * KIB * KIB, "GiB/s"),
    magnitude(KIB * KIB * KIB * KIB, "TiB/s"),
];
const RATIO: &[Magnitude] = &[magnitude(0.01, "%")];

impl Unit {
    /// A value of this unit, to be shown.
    #[must_use]
    pub fn of(self, value: f64) -> Quantity {
        Quantity { value, unit: self }
    }

    fn magnitudes(self) -> &'static [Magnitude] {
        match self {
            Self::Count => COUNT,
            Self::PerSecond => PER_SECOND,
            Self::Millis => MILLIS,
            Self::Bytes => BYTES,
            Self::BytesPerSecond => BYTES_PER_SECOND,
            Self::Ratio => RATIO,
        }
    }

    /// The largest magnitude in which the rounded `value` is at least 1.
    pub(crate) fn magnitude(self, value: f64) -> Magnitude {
        let all = self.magnitudes();
        let fits = |magnitude: &&Magnitude| (value / magnitude.size).abs() >= 0.9995;
        *all.iter().rev().find(fits).unwrap_or(&all[0])
    }
}

impl Magnitude {
    /// `value` in this magnitude, with this number of decimals.
    pub(crate) fn label(self, value: f64, decimals: usize) -> String {
        let number = value / self.size;
        let number = if number == 0.0 { 0.0 } else { number };
        match self.suffix {
            "" => format!("{number:.decimals$}"),
            suffix => format!("{number:.decimals$}{SPACE}{suffix}"),
        }
    }
}

/// A whole number of any type, by value or by reference, because templates pass references. Negative numbers become 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount(pub u64);

macro_rules! amount_from {
    ($($number:ty),*) => {$(
        impl From<$number> for Amount {
            fn from(number: $number) -> Self {
                Self(u64::try_from(number).unwrap_or(0))
            }
        }
    )*};
}

amount_from!(u16, u32, u64, usize, i32, i64);

impl<T: Copy> From<&T> for Amount
where
    Self: From<T>,
{
    fn from(number: &T) -> Self {
        Self::from(*number)
    }
}

impl Quantity {
    /// A number of things.
    #[must_use]
    pub fn count(things: impl Into<Amount>) -> Self {
        Unit::Count.of(things.into().0 as f64)
    }

    #[must_use]
    pub fn bytes(bytes: impl Into<Amount>) -> Self {
        Unit::Bytes.of(bytes.into().0 as f64)
    }

    #[must_use]
    pub fn millis(millis: impl Into<Amount>) -> Self {
        Unit::Millis.of(millis.into().0 as f64)
    }

    #[must_use]
    pub fn duration(duration: impl Borrow<Duration>) -> Self {
        Unit::Millis.of(duration.borrow().as_secs_f64() * 1e3)
    }

    #[must_use]
    pub fn unit(self) -> Unit {
        self.unit
    }

    /// `part` of `whole`, in percent; a dash if `whole` is 0.
    #[must_use]
    pub fn share(part: impl Into<Amount>, whole: impl Into<Amount>) -> Self {
        let (part, whole) = (part.into().0, whole.into().0);
        Unit::Ratio.of(if whole == 0 { f64::NAN } else { part as f64 / whole as f64 })
    }
}

impl Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.value.is_finite() {
            return f.write_str("–");
        }
        let value = self.value.clamp(-MAX_VALUE, MAX_VALUE);
        if value == 0.0 {
            return f.write_str(&self.unit.zero());
        }
        let magnitude = self.unit.magnitude(value);
        let number = value / magnitude.size;
        let text = match self.unit {
            Unit::Ratio => percent(number, magnitude),
            _ => trimmed(magnitude, value, decimals(number, magnitude)),
        };
        f.write_str(&text)
    }
}

impl HtmlSafe for Quantity {}

impl Unit {
    /// Zero in the usual unit: `0 ms`, not `0 µs`.
    fn zero(self) -> String {
        match self {
            Self::Millis => format!("0{SPACE}ms"),
            _ => self.magnitudes()[0].label(0.0, 0),
        }
    }
}

/// Two significant digits, but whole numbers of the smallest magnitude are shown in full.
fn decimals(number: f64, magnitude: Magnitude) -> usize {
    let whole = magnitude.size <= 1.0 && number.fract() == 0.0;
    match number.abs() {
        _ if whole => 0,
        size if size >= 9.95 => 0,
        size if size >= 0.095 => 1,
        size if size >= 0.0095 => 2,
        _ => 3,
    }
}

/// Close to 0 and 100 %, two digits matter. A value below 1 is never shown as 100 %, and a value above 0 never as 0 %.
fn percent(number: f64, magnitude: Magnitude) -> String {
    let decimals = if (1.0..99.0).contains(&number) { 1 } else { 2 };
    let kept = match number {
        n if n > 99.0 && n < 100.0 => n.min(99.99),
        n if n > 0.0 && n < 0.01 => 0.01,
        n => n,
    };
    let floor = if kept > 99.0 { (kept * 100.0).floor() / 100.0 } else { kept };
    trimmed(magnitude, floor * magnitude.size, decimals)
}

/// The label, without zeros at the end of the fraction.
fn trimmed(magnitude: Magnitude, value: f64, decimals: usize) -> String {
    let text = magnitude.label(value, decimals);
    let (number, suffix) = text.split_once(SPACE).unwrap_or((&text, ""));
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    if suffix.is_empty() { number.to_owned() } else { format!("{number}{SPACE}{suffix}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(unit: Unit, value: f64) -> String {
        unit.of(value).to_string().replace(SPACE, " ")
    }

    #[test]
    fn numbers_are_short_and_have_their_unit() {
        for (unit, value, text) in [
            (Unit::Count, 0.0, "0"),
            (Unit::Count, 7.0, "7"),
            (Unit::Count, 999.0, "999"),
            (Unit::Count, 999.6, "1 k"),
            (Unit::Count, 1_234.0, "1.2 k"),
            (Unit::Count, 12_345.0, "12 k"),
            (Unit::Count, 2.5e6, "2.5 M"),
            (Unit::Count, 0.25, "0.2"),
            (Unit::PerSecond, 1_500.0, "1.5 k/s"),
            (Unit::Millis, 0.0, "0 ms"),
            (Unit::Millis, 0.25, "250 µs"),
            (Unit::Millis, 34.2, "34 ms"),
            (Unit::Millis, 1_250.0, "1.2 s"),
            (Unit::Millis, 90_000.0, "1.5 min"),
            (Unit::Millis, 172_800_000.0, "2 d"),
            (Unit::Bytes, 512.0, "512 B"),
            (Unit::Bytes, 5.1 * 1024.0 * 1024.0, "5.1 MiB"),
            (Unit::Ratio, 0.0, "0 %"),
            (Unit::Ratio, 0.5, "50 %"),
            (Unit::Ratio, 0.9995, "99.95 %"),
            (Unit::Ratio, 0.999_999, "99.99 %"),
            (Unit::Ratio, 0.000_001, "0.01 %"),
            (Unit::Ratio, 1.0, "100 %"),
            (Unit::Count, f64::NAN, "–"),
        ] {
            assert_eq!(shown(unit, value), text, "{unit:?} {value}");
        }
    }

    #[test]
    fn share_of_zero_is_a_dash() {
        assert_eq!(Quantity::share(0, 0).to_string(), "–");
        assert_eq!(Quantity::share(1, 4).to_string(), "25\u{a0}%");
    }

    proptest! {
        #[test]
        fn any_number_is_short(value in any::<f64>()) {
            for unit in [Unit::Count, Unit::PerSecond, Unit::Millis, Unit::Bytes, Unit::Ratio] {
                let text = unit.of(value).to_string();
                prop_assert!(text.chars().count() <= 24 && !text.contains("NaN") && !text.contains("inf"), "{}", text);
            }
        }
    }
}
