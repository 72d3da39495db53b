//! What a check expects of its target, as users write it: `status in 200..299`, `body contains "ok"`,
//! `json $.queue.depth < 100`, `latency < 500ms`, `certificate days > 14`.
//!
//! An assertion is parsed when it is saved, and an error has a column. Evaluating one takes time proportional to the
//! response, whatever the assertion.

mod evaluate;
mod json;
mod parse;
mod text;

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use hob_expression::{JsonPath, Mistake};
use hob_service::Period;
use http::HeaderName;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::monitor::check::MonitorKind;

pub use evaluate::{Facts, evaluate};
pub use json::{JsonTest, Scalar};
pub use text::{Pattern, TextTest};

/// The longest assertion, in bytes.
pub const MAX_BYTES: usize = 1000;

/// One expectation of a check.
#[derive(Clone, Debug, PartialEq)]
pub enum Assertion {
    StatusIn(Vec<RangeInclusive<u16>>),
    Status(Comparison, u16),
    Body(TextTest),
    Header(HeaderName, HeaderTest),
    Json(JsonPath, JsonTest),
    Latency(Comparison, Period),
    CertificateDays(Comparison, i64),
}

#[derive(Clone, Debug, PartialEq)]
pub enum HeaderTest {
    Exists,
    Absent,
    Text(TextTest),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

// `<=` is before `<`, which is its prefix.
hob_units::names!(Comparison {
    Equal = "==",
    Unequal = "!=",
    LessOrEqual = "<=",
    GreaterOrEqual = ">=",
    Less = "<",
    Greater = ">",
});

impl Comparison {
    fn holds<T: PartialOrd>(self, found: &T, expected: &T) -> bool {
        match self {
            Self::Equal => found == expected,
            Self::Unequal => found != expected,
            Self::Less => found < expected,
            Self::LessOrEqual => found <= expected,
            Self::Greater => found > expected,
            Self::GreaterOrEqual => found >= expected,
        }
    }
}

impl Assertion {
    /// The kinds of checks that can satisfy it.
    #[must_use]
    pub fn kinds(&self) -> &'static [MonitorKind] {
        use MonitorKind::{Certificate, Dns, Http, Tcp};
        match self {
            Self::StatusIn(_) | Self::Status(..) | Self::Body(_) | Self::Header(..) | Self::Json(..) => {
                &[Http]
            }
            Self::CertificateDays(..) => &[Http, Certificate],
            Self::Latency(..) => &[Http, Tcp, Dns, Certificate],
        }
    }
}

impl FromStr for Assertion {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Self, Mistake> {
        parse::parse(text)
    }
}

/// As users write it; parses to the same assertion.
impl fmt::Display for Assertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StatusIn(ranges) => {
                f.write_str("status in ")?;
                for (n, range) in ranges.iter().enumerate() {
                    let comma = if n == 0 { "" } else { ", " };
                    match (range.start(), range.end()) {
                        (one, same) if one == same => write!(f, "{comma}{one}")?,
                        (first, last) => write!(f, "{comma}{first}..{last}")?,
                    }
                }
                Ok(())
            }
            Self::Status(comparison, status) => write!(f, "status {comparison} {status}"),
            Self::Body(test) => write!(f, "body {test}"),
            Self::Header(name, HeaderTest::Exists) => write!(f, "header {name} exists"),
            Self::Header(name, HeaderTest::Absent) => write!(f, "header {name} not exists"),
            Self::Header(name, HeaderTest::Text(test)) => write!(f, "header {name} {test}"),
            Self::Json(path, test) => write!(f, "json {path} {test}"),
            Self::Latency(comparison, limit) => write!(f, "latency {comparison} {limit}"),
            Self::CertificateDays(comparison, days) => write!(f, "certificate days {comparison} {days}"),
        }
    }
}

impl Serialize for Assertion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Assertion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use hob_expression::Step;
    use proptest::prelude::*;

    use super::*;

    fn comparison() -> impl Strategy<Value = Comparison> {
        prop::sample::select(Comparison::ALL.to_vec())
    }

    fn string() -> impl Strategy<Value = String> {
        prop_oneof!["[a-z \"\\\\/\n\r\t]{0,12}", "\\PC{0,8}"]
    }

    fn pattern() -> impl Strategy<Value = Pattern> {
        let source = prop_oneof![Just("a/b"), Just(r"^\d+\\/$"), Just("(?i)\"ok\" [^/]"), Just(r"\/x")];
        source.prop_map(|source| Pattern::new(source).unwrap())
    }

    fn text_test() -> impl Strategy<Value = TextTest> {
        prop_oneof![
            string().prop_map(TextTest::Equals),
            string().prop_map(TextTest::NotEquals),
            string().prop_map(TextTest::Contains),
            string().prop_map(TextTest::NotContains),
            pattern().prop_map(TextTest::Matches),
            pattern().prop_map(TextTest::NotMatches),
        ]
    }

    fn path() -> impl Strategy<Value = JsonPath> {
        let step = prop_oneof![
            "[a-zA-Z_][a-zA-Z0-9_-]{0,6}".prop_map(Step::Field),
            string().prop_map(Step::Field),
            (-99_i64..99).prop_map(Step::Element),
            Just(Step::Each),
        ];
        prop::collection::vec(step, 0..5).prop_map(JsonPath)
    }

    fn json_test() -> impl Strategy<Value = JsonTest> {
        let number = any::<f64>().prop_filter("JSON has no others", |number| number.is_finite());
        let scalar = prop_oneof![
            string().prop_map(Scalar::Text),
            any::<i64>().prop_map(Scalar::Integer),
            number.prop_map(Scalar::Number),
            any::<bool>().prop_map(Scalar::Bool),
            Just(Scalar::Null),
        ];
        let found_in_text = prop_oneof![
            string().prop_map(TextTest::Contains),
            string().prop_map(TextTest::NotContains),
            pattern().prop_map(TextTest::Matches),
            pattern().prop_map(TextTest::NotMatches),
        ];
        prop_oneof![
            Just(JsonTest::Exists),
            Just(JsonTest::Absent),
            (comparison(), scalar).prop_map(|(comparison, scalar)| JsonTest::Compare(comparison, scalar)),
            found_in_text.prop_map(JsonTest::Text),
        ]
    }

    fn header_test() -> impl Strategy<Value = HeaderTest> {
        prop_oneof![
            Just(HeaderTest::Exists),
            Just(HeaderTest::Absent),
            text_test().prop_map(HeaderTest::Text),
        ]
    }

    fn assertion() -> impl Strategy<Value = Assertion> {
        let range = (100_u16..600, 0_u16..300).prop_map(|(first, more)| first..=(first + more).min(999));
        let header = "[a-z][a-z0-9-]{0,10}".prop_map(|name| name.parse::<HeaderName>().unwrap());
        let period = (0_u64..100_000_000).prop_map(Period::from_millis);
        prop_oneof![
            prop::collection::vec(range, 1..4).prop_map(Assertion::StatusIn),
            (comparison(), 100_u16..1000).prop_map(|(sign, status)| Assertion::Status(sign, status)),
            text_test().prop_map(Assertion::Body),
            (header, header_test()).prop_map(|(name, test)| Assertion::Header(name, test)),
            (path(), json_test()).prop_map(|(path, test)| Assertion::Json(path, test)),
            (comparison(), period).prop_map(|(sign, limit)| Assertion::Latency(sign, limit)),
            (comparison(), -9999_i64..9999).prop_map(|(sign, days)| Assertion::CertificateDays(sign, days)),
        ]
    }

    proptest! {
        #[test]
        fn displayed_assertion_parses_to_the_same(assertion in assertion()) {
            let shown = assertion.to_string();
            prop_assert_eq!(shown.parse::<Assertion>(), Ok(assertion), "{}", shown);
        }

        #[test]
        fn parser_does_not_panic(text in "(status|body|json|header|latency|certificate)?\\PC{0,40}") {
            if let Err(error) = text.parse::<Assertion>() {
                prop_assert!(error.column <= text.chars().count() + 1);
            }
        }
    }
}
