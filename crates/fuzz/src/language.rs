//! Small languages that users write: expressions, assertions, and documents in JSON, TOML and YAML.

use std::time::Duration;

use hob_document::{Document, Format};
use hob_expression::{JsonPath, Mistake, Reader, Template};
use hob_uptime::monitor::assertion::{Assertion, Facts, evaluate};
use http::HeaderMap;
use http::header::{CONTENT_TYPE, HeaderValue};

const SAMPLE: &str = r#"{"a": {"b c": [1, 2.5, null]}, "d": [{"e": true}, {"e": "x"}], "": -1}"#;
/// The longest path and the longest assertion. Escapes can make one longer than it was written.
const MAX_BYTES: usize = 1000;
const MAX_DOCUMENT_BYTES: usize = 1 << 16;

/// A JSON path, a template, a quoted text, a duration: parsed or rejected, with a column that exists.
pub fn expression(data: &[u8]) {
    let Some(text) = crate::text(data) else { return };
    match text.parse::<JsonPath>() {
        Ok(path) => {
            let document = serde_json::from_str(SAMPLE).expect("the sample is JSON");
            let _ = path.find(&document);
            let shown = path.to_string();
            assert!(shown.len() > MAX_BYTES || shown.parse() == Ok(path), "{shown}");
        }
        Err(mistake) => check_column(text, &mistake),
    }
    if let Err(mistake) = Template::parse(text, |name| Ok(name.to_owned())) {
        check_column(text, &mistake);
    }
    if let Err(mistake) = Reader::new(text).quoted() {
        check_column(text, &mistake);
    }
    let _ = hob_units::parse_duration(text);
    let _ = hob_units::parse_size(text);
}

/// An assertion is displayed as it was parsed, and can be evaluated with and without facts.
pub fn assertion(data: &[u8]) {
    let Some(text) = crate::text(data) else { return };
    match text.parse::<Assertion>() {
        Ok(assertion) => {
            let shown = assertion.to_string();
            assert!(shown.len() > MAX_BYTES || shown.parse().as_ref() == Ok(&assertion), "{shown}");
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("text/plain"))]);
            let facts = Facts {
                status: Some(200),
                headers: Some(&headers),
                body: Some(SAMPLE.as_bytes()),
                latency: Duration::from_millis(120),
                certificate_days: Some(30),
                mask: None,
            };
            for facts in [facts, Facts::default()] {
                assert_eq!(evaluate(std::slice::from_ref(&assertion), &facts).len(), 1);
            }
        }
        Err(mistake) => check_column(text, &mistake),
    }
}

fn check_column(text: &str, mistake: &Mistake) {
    assert!(mistake.column <= text.chars().count() + 1, "{mistake:?}");
}

/// A document is parsed or rejected, and an error is at a position of the text. The first byte chooses the format.
pub fn document(data: &[u8]) {
    let Some((format, data)) = data.split_first() else { return };
    let Some(text) = crate::text(data) else { return };
    let format = match format {
        b'j' => Format::Json,
        b't' => Format::Toml,
        _ => Format::Yaml,
    };
    let mistake = match Document::parse(text, format, MAX_DOCUMENT_BYTES) {
        Ok(document) => document.mistake("a.b[0].c", "wrong"),
        Err(mistake) => mistake,
    };
    // In YAML, a carriage return alone ends a line.
    assert!(mistake.at.line <= text.split(['\n', '\r']).count(), "{mistake:?}");
}
