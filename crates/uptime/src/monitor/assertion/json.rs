//! Tests of values in a JSON document.

use std::cmp::Ordering;
use std::fmt;

use hob_expression::Quoted;
use serde_json::Value;

use super::Comparison;
use super::text::TextTest;

/// A test of the values that a path finds. Each of them must pass. If there are none, only [`JsonTest::Absent`] passes.
#[derive(Clone, Debug, PartialEq)]
pub enum JsonTest {
    Exists,
    Absent,
    Compare(Comparison, Scalar),
    Text(TextTest),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    Text(String),
    /// Separate from other numbers, so that an id of nineteen digits is compared exactly.
    Integer(i64),
    Number(f64),
    Bool(bool),
    Null,
}

impl JsonTest {
    pub(super) fn holds(&self, found: &[&Value]) -> bool {
        match self {
            Self::Exists => !found.is_empty(),
            Self::Absent => found.is_empty(),
            Self::Compare(comparison, expected) => {
                !found.is_empty() && found.iter().all(|value| expected.compares(value, *comparison))
            }
            Self::Text(test) => {
                let passes = |value: &&Value| value.as_str().is_some_and(|text| test.holds(text.as_bytes()));
                !found.is_empty() && found.iter().all(passes)
            }
        }
    }
}

impl Scalar {
    /// Values of different types are unequal and not ordered.
    fn compares(&self, found: &Value, comparison: Comparison) -> bool {
        let order = match (found, self) {
            (Value::String(found), Self::Text(text)) => Some(found.as_str().cmp(text)),
            (Value::Bool(found), Self::Bool(expected)) => Some(found.cmp(expected)),
            (Value::Null, Self::Null) => Some(Ordering::Equal),
            (Value::Number(found), Self::Integer(expected)) => match found.as_i64() {
                Some(found) => Some(found.cmp(expected)),
                // From 2⁶³ on, or with a fraction: compared as doubles.
                None => found.as_f64().and_then(|found| found.partial_cmp(&(*expected as f64))),
            },
            (Value::Number(found), Self::Number(expected)) => {
                found.as_f64().and_then(|found| found.partial_cmp(expected))
            }
            _ => None,
        };
        match order {
            Some(order) => comparison.holds(&order, &Ordering::Equal),
            None => comparison == Comparison::Unequal,
        }
    }
}

impl fmt::Display for JsonTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists => f.write_str("exists"),
            Self::Absent => f.write_str("not exists"),
            Self::Compare(comparison, scalar) => write!(f, "{comparison} {scalar}"),
            Self::Text(test) => test.fmt(f),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => Quoted(text).fmt(f),
            Self::Integer(number) => number.fmt(f),
            // With its point or exponent, so that it is parsed as a number again.
            Self::Number(number) => write!(f, "{number:?}"),
            Self::Bool(value) => value.fmt(f),
            Self::Null => f.write_str("null"),
        }
    }
}
