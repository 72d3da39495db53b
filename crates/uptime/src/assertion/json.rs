//! Where to look in a JSON document, and what should be there.
//!
//! A path is `$` and steps: `.name`, `["any name"]`, `[0]`, `[-1]` from the end, `[*]` for each. There are no
//! filters and no descents: a path visits every value once at most, so nobody can write one that is slow.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

use super::Comparison;
use super::text::{Quoted, TextTest};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath(pub Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Field(String),
    /// Negative ones count from the end.
    Element(i64),
    /// Each element of an array, each value of an object.
    Each,
}

/// What is expected of what a path finds. If it finds several values, each has to pass; none passes only
/// [`JsonTest::Absent`].
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
    /// Apart from other numbers, since an id of nineteen digits is compared to the last of them.
    Integer(i64),
    Number(f64),
    Bool(bool),
    Null,
}

impl JsonPath {
    pub(super) fn find<'a>(&self, document: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![document];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.take(value)).collect();
        }
        found
    }
}

impl Step {
    fn take<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(fields)) => fields.get(name).into_iter().collect(),
            (Self::Element(place), Value::Array(elements)) => {
                let from_end = usize::try_from(place.unsigned_abs()).ok();
                let index =
                    if *place < 0 { from_end.and_then(|n| elements.len().checked_sub(n)) } else { from_end };
                index.and_then(|index| elements.get(index)).into_iter().collect()
            }
            (Self::Each, Value::Array(elements)) => elements.iter().collect(),
            (Self::Each, Value::Object(fields)) => fields.values().collect(),
            _ => Vec::new(),
        }
    }
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
    /// Values of different kinds are unequal, and neither is less.
    fn compares(&self, found: &Value, comparison: Comparison) -> bool {
        let order = match (found, self) {
            (Value::String(found), Self::Text(text)) => Some(found.as_str().cmp(text)),
            (Value::Bool(found), Self::Bool(expected)) => Some(found.cmp(expected)),
            (Value::Null, Self::Null) => Some(Ordering::Equal),
            (Value::Number(found), Self::Integer(expected)) => match found.as_i64() {
                Some(found) => Some(found.cmp(expected)),
                // Past 2⁶³ or with a fraction: the nearest double decides.
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

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("$")?;
        for step in &self.0 {
            match step {
                Step::Field(name) if is_plain(name) => write!(f, ".{name}")?,
                Step::Field(name) => write!(f, "[{}]", Quoted(name))?,
                Step::Element(index) => write!(f, "[{index}]")?,
                Step::Each => f.write_str("[*]")?,
            }
        }
        Ok(())
    }
}

/// Whether a field can be written behind a dot.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(in_plain_name)
}

pub(super) fn in_plain_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
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
            // With its point or exponent, so that it reads back as what it is.
            Self::Number(number) => write!(f, "{number:?}"),
            Self::Bool(value) => value.fmt(f),
            Self::Null => f.write_str("null"),
        }
    }
}
