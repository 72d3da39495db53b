//! Values that have the right type and are wrong nevertheless: a duration of zero, an address that cannot be parsed.

use std::fmt::Display;
use std::ops::{Bound, RangeBounds};

use hob_units::Period;

/// What is wrong with one value of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The value in its section: `deny[0]` or `rules[1].windows`.
    pub path: String,
    pub message: String,
}

/// The mistakes of a section, in the order in which they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes(Vec<Mistake>);

impl Mistakes {
    pub fn add(&mut self, path: impl Into<String>, message: impl Display) {
        self.0.push(Mistake { path: path.into(), message: message.to_string() });
    }

    /// Returns the value of `Ok`, or adds the error of `Err` as a mistake.
    pub fn check<T, E: Display>(&mut self, path: impl Into<String>, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.add(path, error)).ok()
    }

    /// Checks each value of a list.
    pub fn check_each<V, T, E: Display>(
        &mut self,
        field: &str,
        values: &[V],
        check: impl Fn(&V) -> Result<T, E>,
    ) {
        for (index, value) in values.iter().enumerate() {
            self.check(format!("{field}[{index}]"), check(value));
        }
    }

    /// A certificate and its key are useless without each other.
    pub fn check_tls_pair(&mut self, certificate: Option<impl Sized>, key: Option<impl Sized>) {
        match (certificate, key) {
            (Some(_), None) => self.add("tls_certificate", "`tls_key` is missing; TLS needs both"),
            (None, Some(_)) => self.add("tls_key", "`tls_certificate` is missing; TLS needs both"),
            _ => {}
        }
    }

    /// Checks a value against the range that its declaration names.
    pub fn check_range<T: Ranged>(&mut self, field: &str, value: &T, range: &impl RangeBounds<T::Value>) {
        let Some(value) = value.value().filter(|value| !range.contains(value)) else { return };
        let limits = match (range.start_bound(), range.end_bound()) {
            (Bound::Included(low), Bound::Included(high)) => format!("between {low} and {high}"),
            (Bound::Included(low), _) => format!("at least {low}"),
            (_, Bound::Included(high)) => format!("at most {high}"),
            _ => "in its range".to_owned(),
        };
        self.add(field, format!("must be {limits}, not {value}"));
    }

    #[must_use]
    pub fn into_vec(self) -> Vec<Mistake> {
        self.0
    }
}

/// A value that can have a range: a number or a duration, possibly optional. `None` is always in range.
pub trait Ranged {
    type Value: PartialOrd + Display;

    fn value(&self) -> Option<&Self::Value>;
}

macro_rules! ranged {
    ($($kind:ty),+) => {
        $(impl Ranged for $kind {
            type Value = Self;

            fn value(&self) -> Option<&Self> {
                Some(self)
            }
        })+
    };
}

ranged!(u32, f64, Period);

impl<T: Ranged> Ranged for Option<T> {
    type Value = T::Value;

    fn value(&self) -> Option<&T::Value> {
        self.as_ref()?.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_outside_of_its_range_is_a_mistake() {
        let messages = |value: Option<u32>| {
            let mut mistakes = Mistakes::default();
            mistakes.check_range("a", &value, &(1..));
            mistakes.check_range("b", &value, &(1..=5));
            mistakes.into_vec().into_iter().map(|mistake| mistake.message).collect::<Vec<_>>()
        };
        assert_eq!(messages(Some(0)), ["must be at least 1, not 0", "must be between 1 and 5, not 0"]);
        assert_eq!(messages(Some(6)), ["must be between 1 and 5, not 6"]);
        assert!(messages(Some(1)).is_empty() && messages(None).is_empty());
    }
}
