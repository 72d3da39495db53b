//! Evaluates assertions.

use std::cell::OnceCell;
use std::time::Duration;

use hob_service::config::Mask;
use http::HeaderMap;
use serde_json::Value;

use super::{Assertion, HeaderTest};
use crate::monitor::check::AssertionResult;

/// Characters of a found value that are shown.
const MAX_FOUND_CHARS: usize = 80;

/// What a probe observed, as far as it got. An assertion about something that the protocol does not have fails.
#[derive(Debug, Default)]
pub struct Facts<'a> {
    pub status: Option<u16>,
    pub headers: Option<&'a HeaderMap>,
    pub body: Option<&'a [u8]>,
    pub latency: Duration,
    pub certificate_days: Option<i64>,
    /// Hides secrets in found values.
    pub mask: Option<&'a Mask>,
}

/// The result of each assertion.
#[must_use]
pub fn evaluate(assertions: &[Assertion], facts: &Facts<'_>) -> Vec<AssertionResult> {
    let document = OnceCell::new();
    let evaluation = Evaluation { facts, document: &document };
    let result = |assertion: &Assertion| {
        let (holds, found) = assertion.evaluate(evaluation);
        AssertionResult { text: assertion.to_string(), holds, found: shorten(&found) }
    };
    assertions.iter().map(result).collect()
}

#[derive(Clone, Copy)]
struct Evaluation<'a> {
    facts: &'a Facts<'a>,
    /// The body, parsed once for all assertions.
    document: &'a OnceCell<Option<Value>>,
}

impl Assertion {
    /// Whether it needs the body.
    #[must_use]
    pub fn reads_body(&self) -> bool {
        matches!(self, Self::Body(_) | Self::Json(..))
    }

    /// Whether it tests the status code.
    #[must_use]
    pub fn reads_status(&self) -> bool {
        matches!(self, Self::StatusIn(_) | Self::Status(..))
    }

    fn evaluate(&self, evaluation: Evaluation<'_>) -> (bool, String) {
        let facts = evaluation.facts;
        match self {
            Self::StatusIn(ranges) => {
                let within = |status: &u16| ranges.iter().any(|range| range.contains(status));
                with(facts.status, "no status", |status| (within(&status), status.to_string()))
            }
            Self::Status(comparison, expected) => with(facts.status, "no status", |status| {
                (comparison.holds(&status, expected), status.to_string())
            }),
            Self::Body(test) => with(facts.body, "no body", |body| (test.holds(body), facts.show(body))),
            Self::Header(name, test) => with(facts.headers, "no headers", |headers| {
                let values: Vec<&[u8]> = headers.get_all(name).iter().map(AsRef::as_ref).collect();
                let holds = match test {
                    HeaderTest::Exists => !values.is_empty(),
                    HeaderTest::Absent => values.is_empty(),
                    // One of several headers with this name is enough.
                    HeaderTest::Text(test) => values.iter().any(|value| test.holds(value)),
                };
                let shown =
                    values.first().map_or_else(|| "no such header".to_owned(), |value| facts.show(value));
                (holds, shown)
            }),
            Self::Json(path, test) => with(evaluation.document(), "no JSON", |document| {
                let found = path.find(document);
                let shown = match found.as_slice() {
                    [] => "nothing there".to_owned(),
                    [one] => facts.show_value(one),
                    [first, ..] => format!("{} values, first {}", found.len(), facts.show_value(first)),
                };
                (test.holds(&found), shown)
            }),
            Self::Latency(comparison, limit) => {
                let found = facts.latency;
                (comparison.holds(&found, &limit.get()), format!("{:.1}ms", found.as_secs_f64() * 1000.0))
            }
            Self::CertificateDays(comparison, expected) => {
                with(facts.certificate_days, "no certificate", |days| {
                    (comparison.holds(&days, expected), days.to_string())
                })
            }
        }
    }
}

impl<'a> Evaluation<'a> {
    fn document(self) -> Option<&'a Value> {
        let parse = || self.facts.body.and_then(|body| serde_json::from_slice(body).ok());
        self.document.get_or_init(parse).as_ref()
    }
}

/// The result for a fact; a missing fact fails.
fn with<T>(fact: Option<T>, absent: &str, evaluate: impl FnOnce(T) -> (bool, String)) -> (bool, String) {
    fact.map_or_else(|| (false, absent.to_owned()), evaluate)
}

impl Facts<'_> {
    fn show(&self, bytes: &[u8]) -> String {
        if bytes.is_empty() {
            return "nothing".to_owned();
        }
        self.mask.unwrap_or(&Mask::default()).beginning(bytes, MAX_FOUND_CHARS + 1)
    }

    fn show_value(&self, value: &Value) -> String {
        let mask = |text: &str| self.mask.map_or(text.to_owned(), |mask| mask.apply(text).into_owned());
        match value {
            Value::Array(elements) => format!("an array of {}", elements.len()),
            Value::Object(fields) => format!("an object with {} fields", fields.len()),
            Value::String(text) => mask(text),
            scalar => mask(&scalar.to_string()),
        }
    }
}

fn shorten(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let mut short: String = text.chars().map(clean).take(MAX_FOUND_CHARS).collect();
    if text.chars().nth(MAX_FOUND_CHARS).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluate_one(facts: &Facts<'_>, expression: &str) -> (bool, String) {
        let result = evaluate(&[expression.parse().unwrap()], facts).remove(0);
        assert_eq!(result.text, expression);
        (result.holds, result.found)
    }

    fn check(facts: &Facts<'_>, hold: &[&str], fail: &[(&str, &str)]) {
        for expression in hold {
            assert!(evaluate_one(facts, expression).0, "{expression} should hold");
        }
        for (expression, found) in fail {
            assert_eq!(evaluate_one(facts, expression), (false, (*found).to_owned()), "{expression}");
        }
    }

    #[test]
    fn status_is_compared_with_ranges_and_numbers() {
        let facts = Facts { status: Some(204), ..Facts::default() };
        check(
            &facts,
            &["status in 200..299", "status in 404, 204", "status == 204", "status < 300"],
            &[("status in 200..203", "204"), ("status != 204", "204")],
        );
        check(&Facts::default(), &[], &[("status == 204", "no status")]);
    }

    #[test]
    fn body_may_be_binary() {
        let facts = Facts { body: Some(b"\xff\xfeok\nDone"), ..Facts::default() };
        check(
            &facts,
            &["body contains \"ok\"", "body matches /Done$/", "body not contains \"fail\"", "body != \"x\""],
            &[
                ("body not matches /ok/", "\u{fffd}\u{fffd}ok Done"),
                ("body == \"ok\"", "\u{fffd}\u{fffd}ok Done"),
            ],
        );
    }

    #[test]
    fn one_of_repeated_headers_is_enough() {
        let mut headers = HeaderMap::new();
        headers.append("via", "a".parse().unwrap());
        headers.append("via", "b".parse().unwrap());
        let facts = Facts { headers: Some(&headers), ..Facts::default() };
        check(
            &facts,
            &["header via == \"b\"", "header via exists", "header x not exists"],
            &[
                ("header via contains \"c\"", "a"),
                ("header x exists", "no such header"),
                ("header via not exists", "a"),
            ],
        );
    }

    #[test]
    fn all_values_of_a_path_must_pass() {
        let body = br#"{"ok":true,"id":9007199254740993,"load":0.5,"name":"a","gone":null,
            "parts":[{"up":true},{"up":true},{"up":false}],"odd name":[1,2,3]}"#;
        let facts = Facts { body: Some(body), ..Facts::default() };
        check(
            &facts,
            &[
                "json $.ok == true",
                "json $.id == 9007199254740993",
                "json $.id != 9007199254740992",
                "json $.load < 1",
                "json $.load == 0.5",
                "json $.name matches /^a$/",
                "json $.gone == null",
                "json $.missing not exists",
                "json $[\"odd name\"][-1] == 3",
                "json $[\"odd name\"][*] > 0",
                "json $.parts[0].up == true",
                "json $.name != 7",
            ],
            &[
                ("json $.parts[*].up == true", "3 values, first true"),
                ("json $.missing == 1", "nothing there"),
                ("json $.missing != 1", "nothing there"),
                ("json $.name < 7", "a"),
                ("json $.parts == 1", "an array of 3"),
                ("json $[\"odd name\"][3] exists", "nothing there"),
                ("json $[\"odd name\"][-4] exists", "nothing there"),
            ],
        );
        let facts = Facts { body: Some(b"<html>"), ..Facts::default() };
        check(&facts, &[], &[("json $.ok == true", "no JSON"), ("json $.ok not exists", "no JSON")]);
    }

    #[test]
    fn latency_and_certificate_days_are_compared() {
        let facts =
            Facts { latency: Duration::from_millis(250), certificate_days: Some(-1), ..Facts::default() };
        check(
            &facts,
            &["latency < 500ms", "latency <= 250ms", "certificate days < 0"],
            &[("latency > 1s", "250.0ms"), ("certificate days > 14", "-1")],
        );
    }

    #[test]
    fn found_value_of_a_large_body_is_short() {
        let body = vec![b'x'; 1 << 20];
        let facts = Facts { body: Some(&body), ..Facts::default() };
        assert_eq!(evaluate_one(&facts, "body == \"\"").1.chars().count(), MAX_FOUND_CHARS + 1);
    }
}
