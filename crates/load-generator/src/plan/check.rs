//! Checks of a response, and the extraction of values for later steps.

use std::fmt;
use std::time::Duration;

use hob_expression::JsonPath;
use regex::bytes::Regex;

/// A response for checks and extractions.
#[derive(Clone, Copy, Debug)]
pub struct ResponseView<'a> {
    pub status: u16,
    /// The status line and the headers as received.
    pub head: &'a [u8],
    /// Empty unless the step needs it.
    pub body: &'a [u8],
    /// From the actual start.
    pub took: Duration,
}

impl<'a> ResponseView<'a> {
    /// The value of the first header of that name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a str> {
        let lines = self.head.split(|byte| *byte == b'\n').skip(1);
        lines.filter_map(|line| std::str::from_utf8(line).ok()).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// An expectation of a response.
#[derive(Clone, Debug)]
pub enum Check {
    /// One of these. Without this check, the status must be below 400.
    Status(Vec<u16>),
    Contains(String),
    Matches(Regex),
    Header {
        name: String,
        contains: String,
    },
    Json {
        path: JsonPath,
        equals: String,
    },
    Within(Duration),
}

impl Check {
    #[must_use]
    pub fn holds(&self, response: &ResponseView<'_>) -> bool {
        match self {
            Self::Status(any) => any.contains(&response.status),
            Self::Contains(text) => contains(response.body, text.as_bytes()),
            Self::Matches(regex) => regex.is_match(response.body),
            Self::Header { name, contains } => {
                response.header(name).is_some_and(|value| value.contains(contains.as_str()))
            }
            Self::Json { path, equals } => {
                json_text(response.body, path).is_some_and(|found| found == *equals)
            }
            Self::Within(limit) => response.took <= *limit,
        }
    }

    /// The expected statuses, such as `200 or 204`.
    #[must_use]
    pub fn statuses(&self) -> Option<String> {
        let Self::Status(any) = self else { return None };
        Some(any.iter().map(u16::to_string).collect::<Vec<_>>().join(" or "))
    }

    pub(super) fn needs_body(&self) -> bool {
        matches!(self, Self::Contains(_) | Self::Matches(_) | Self::Json { .. })
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(_) => write!(f, "status {}", self.statuses().unwrap_or_default()),
            Self::Contains(text) => write!(f, "contains {text:?}"),
            Self::Matches(regex) => write!(f, "matches {regex}"),
            Self::Header { name, contains } => write!(f, "header {name} contains {contains:?}"),
            Self::Json { path, equals } => write!(f, "{path} is {equals:?}"),
            Self::Within(limit) => write!(f, "within {limit:?}"),
        }
    }
}

/// Extracts a value from a response.
#[derive(Clone, Debug)]
pub struct Extraction {
    /// The index of the variable to set.
    pub variable: usize,
    pub from: ValueSource,
}

/// Where to find a value.
#[derive(Clone, Debug)]
pub enum ValueSource {
    Json(JsonPath),
    Header(String),
    /// The first group of the first match.
    Regex(Regex),
}

impl Extraction {
    /// The value, if the response has it.
    #[must_use]
    pub fn take(&self, response: &ResponseView<'_>) -> Option<String> {
        match &self.from {
            ValueSource::Json(path) => json_text(response.body, path),
            ValueSource::Header(name) => response.header(name).map(str::to_owned),
            ValueSource::Regex(regex) => {
                let found = regex.captures(response.body)?;
                let group = found.get(1).or_else(|| found.get(0))?;
                String::from_utf8(group.as_bytes().to_vec()).ok()
            }
        }
    }

    pub(super) fn needs_body(&self) -> bool {
        !matches!(self.from, ValueSource::Header(_))
    }
}

impl ValueSource {
    /// Parses `json $.token`, `header location` or `regex id=(\d+)`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
        match kind {
            "json" => Ok(Self::Json(parse_path(rest)?)),
            "header" if !rest.is_empty() => Ok(Self::Header(rest.to_owned())),
            "regex" => Ok(Self::Regex(parse_regex(rest)?)),
            _ => Err("write \"json $.path\", \"header name\" or \"regex pattern(group)\"".to_owned()),
        }
    }
}

pub(super) fn parse_path(text: &str) -> Result<JsonPath, String> {
    text.parse().map_err(|mistake| format!("{text:?} is not a JSON path: {mistake}"))
}

pub(super) fn parse_regex(text: &str) -> Result<Regex, String> {
    // A user's pattern, run on every response: its compiled size is limited.
    regex::bytes::RegexBuilder::new(text)
        .size_limit(1 << 20)
        .build()
        .map_err(|error| format!("{text:?} is not a regular expression: {error}"))
}

fn contains(body: &[u8], text: &[u8]) -> bool {
    text.is_empty() || body.windows(text.len()).any(|window| window == text)
}

/// The first value at a path, as text.
fn json_text(body: &[u8], path: &JsonPath) -> Option<String> {
    let json: serde_json::Value = serde_json::from_slice(body).ok()?;
    let found = *path.find(&json).first()?;
    Some(found.as_str().map_or_else(|| found.to_string(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESPONSE: ResponseView<'static> = ResponseView {
        status: 201,
        head: b"HTTP/1.1 201 Created\r\nLocation: /items/17\r\n\r\n",
        body: br#"{"token": "abc", "n": 3, "ok": true}"#,
        took: Duration::from_millis(20),
    };

    #[test]
    fn values_are_extracted_from_json_headers_and_patterns() {
        for (text, value) in [
            ("json $.token", Some("abc")),
            ("json $.n", Some("3")),
            ("json $.missing", None),
            ("header location", Some("/items/17")),
            (r#"regex "n": (\d)"#, Some("3")),
            ("regex nothing", None),
        ] {
            let extraction = Extraction { variable: 0, from: ValueSource::parse(text).unwrap() };
            assert_eq!(extraction.take(&RESPONSE).as_deref(), value, "{text}");
        }
        assert!(ValueSource::parse("xml //a").is_err());
        assert!(ValueSource::parse("regex (").is_err());
        assert!(ValueSource::parse("json $..token").unwrap_err().contains("column 3"));
    }

    #[test]
    fn each_check_can_pass_and_fail() {
        let path = || parse_path("$.ok").unwrap();
        for (holds, fails) in [
            (Check::Status(vec![200, 201]), Check::Status(vec![200])),
            (Check::Contains("abc".into()), Check::Contains("xyz".into())),
            (Check::Matches(parse_regex("a.c").unwrap()), Check::Matches(parse_regex("^x").unwrap())),
            (
                Check::Header { name: "Location".into(), contains: "items".into() },
                Check::Header { name: "X-None".into(), contains: String::new() },
            ),
            (
                Check::Json { path: path(), equals: "true".into() },
                Check::Json { path: path(), equals: "false".into() },
            ),
            (Check::Within(Duration::from_millis(20)), Check::Within(Duration::from_millis(19))),
        ] {
            assert!(holds.holds(&RESPONSE), "{holds}");
            assert!(!fails.holds(&RESPONSE), "{fails}");
        }
    }
}
