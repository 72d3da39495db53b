//! Tests of a text: a body, a header, or a string in a JSON document.

use std::fmt::{self, Write as _};

use hob_expression::Quoted;
use memchr::memmem;
use regex::bytes::{Regex, RegexBuilder};

/// The longest regular expression, in bytes.
const MAX_PATTERN_BYTES: usize = 500;

/// Memory of a compiled regular expression, and of its cache while it runs.
const MAX_REGEX_BYTES: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq)]
pub enum TextTest {
    Equals(String),
    NotEquals(String),
    Contains(String),
    NotContains(String),
    Matches(Pattern),
    NotMatches(Pattern),
}

/// A regular expression of bounded size. It works on bytes, because a body may be binary, in linear time.
#[derive(Clone, Debug)]
pub struct Pattern {
    source: String,
    regex: Regex,
}

impl TextTest {
    pub(super) fn holds(&self, text: &[u8]) -> bool {
        match self {
            Self::Equals(expected) => text == expected.as_bytes(),
            Self::NotEquals(other) => text != other.as_bytes(),
            Self::Contains(part) => memmem::find(text, part.as_bytes()).is_some(),
            Self::NotContains(part) => memmem::find(text, part.as_bytes()).is_none(),
            Self::Matches(pattern) => pattern.regex.is_match(text),
            Self::NotMatches(pattern) => !pattern.regex.is_match(text),
        }
    }
}

impl Pattern {
    /// Takes the text between the slashes; an escaped slash in it means a slash.
    pub fn new(source: &str) -> Result<Self, String> {
        if source.len() > MAX_PATTERN_BYTES {
            return Err(format!("the regular expression is longer than {MAX_PATTERN_BYTES} bytes"));
        }
        let built = RegexBuilder::new(source)
            .size_limit(MAX_REGEX_BYTES)
            .dfa_size_limit(MAX_REGEX_BYTES)
            .nest_limit(50)
            .build();
        match built {
            Ok(regex) => Ok(Self { source: unescape_slashes(source), regex }),
            Err(regex::Error::CompiledTooBig(_)) => Err("the regular expression is too large".to_owned()),
            // The error has several lines; the last one says what is wrong.
            Err(error) => {
                let text = error.to_string();
                let reason = text.lines().last().unwrap_or_default();
                Err(format!("not a regular expression: {}", reason.trim_start_matches("error: ")))
            }
        }
    }
}

/// `\/` means the same as `/`; the plain form is kept.
fn unescape_slashes(source: &str) -> String {
    let mut plain = String::with_capacity(source.len());
    let mut chars = source.chars();
    while let Some(c) = chars.next() {
        match (c, chars.as_str().chars().next()) {
            ('\\', Some('/')) => {}
            ('\\', Some(escaped)) => {
                plain.extend([c, escaped]);
                chars.next();
            }
            _ => plain.push(c),
        }
    }
    plain
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl fmt::Display for TextTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equals(text) => write!(f, "== {}", Quoted(text)),
            Self::NotEquals(text) => write!(f, "!= {}", Quoted(text)),
            Self::Contains(text) => write!(f, "contains {}", Quoted(text)),
            Self::NotContains(text) => write!(f, "not contains {}", Quoted(text)),
            Self::Matches(pattern) => write!(f, "matches {pattern}"),
            Self::NotMatches(pattern) => write!(f, "not matches {pattern}"),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('/')?;
        let mut escaped = false;
        for c in self.source.chars() {
            if c == '/' && !escaped {
                f.write_char('\\')?;
            }
            escaped = c == '\\' && !escaped;
            f.write_char(c)?;
        }
        f.write_char('/')
    }
}
