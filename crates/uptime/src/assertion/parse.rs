//! Reads an expression, from left to right and without going back.

use std::ops::RangeInclusive;

use http::HeaderName;

use super::json::in_plain_name;
use super::{
    Assertion, Comparison, HeaderTest, JsonPath, JsonTest, LONGEST, Pattern, Scalar, Step, TextTest,
};

/// What is wrong with an expression, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {message}")]
pub struct BadAssertion {
    /// The character at which it goes wrong, counted from 1.
    pub column: usize,
    pub message: String,
}

const MOST_RANGES: usize = 16;
const MOST_STEPS: usize = 32;
const STATUSES: RangeInclusive<u16> = 100..=999;

pub(super) fn parse(text: &str) -> Result<Assertion, BadAssertion> {
    let mut reader = Reader { text, at: 0 };
    if text.len() > LONGEST {
        return Err(reader.mistake(format!("an assertion has at most {LONGEST} bytes")));
    }
    let begin = reader.skip_space();
    let assertion = match reader.word() {
        "status" => status(&mut reader)?,
        "body" => Assertion::Body(text_test(&mut reader)?),
        "header" => header(&mut reader)?,
        "json" => json(&mut reader)?,
        "latency" => latency(&mut reader)?,
        "certificate" => certificate(&mut reader)?,
        _ => {
            reader.at = begin;
            return Err(reader.expected("status, body, header, json, latency or certificate"));
        }
    };
    reader.skip_space();
    if reader.rest().is_empty() { Ok(assertion) } else { Err(reader.expected("the end")) }
}

fn status(reader: &mut Reader<'_>) -> Result<Assertion, BadAssertion> {
    if let Some(comparison) = reader.comparison() {
        return Ok(Assertion::Status(comparison, status_code(reader)?));
    }
    if !reader.keyword("in") {
        return Err(reader.expected("in, or a comparison such as =="));
    }
    let mut ranges = vec![status_range(reader)?];
    while reader.symbol(",") {
        if ranges.len() == MOST_RANGES {
            return Err(reader.mistake(format!("at most {MOST_RANGES} ranges")));
        }
        ranges.push(status_range(reader)?);
    }
    Ok(Assertion::StatusIn(ranges))
}

fn status_range(reader: &mut Reader<'_>) -> Result<RangeInclusive<u16>, BadAssertion> {
    let first = status_code(reader)?;
    if !reader.symbol("..") {
        return Ok(first..=first);
    }
    let begin = reader.skip_space();
    let last = status_code(reader)?;
    if last < first {
        reader.at = begin;
        return Err(reader.mistake(format!("the range is empty: {last} is less than {first}")));
    }
    Ok(first..=last)
}

fn status_code(reader: &mut Reader<'_>) -> Result<u16, BadAssertion> {
    let begin = reader.skip_space();
    let digits = reader.take_while(|c| c.is_ascii_digit());
    match digits.parse() {
        Ok(code) if STATUSES.contains(&code) => Ok(code),
        _ => {
            reader.at = begin;
            Err(reader.expected("a status code from 100 to 999"))
        }
    }
}

fn header(reader: &mut Reader<'_>) -> Result<Assertion, BadAssertion> {
    let begin = reader.skip_space();
    let name = reader.take_while(|c| !c.is_whitespace() && !"=!<>\"/".contains(c));
    let Ok(name) = name.parse::<HeaderName>() else {
        reader.at = begin;
        return Err(reader.expected("the name of a header"));
    };
    let test = match presence(reader) {
        Some(Presence::Exists) => HeaderTest::Exists,
        Some(Presence::Absent) => HeaderTest::Absent,
        None => HeaderTest::Text(text_test(reader)?),
    };
    Ok(Assertion::Header(name, test))
}

enum Presence {
    Exists,
    Absent,
}

/// `exists` or `not exists`, if that is what comes.
fn presence(reader: &mut Reader<'_>) -> Option<Presence> {
    let begin = reader.at;
    let presence = if reader.keyword("not") { Presence::Absent } else { Presence::Exists };
    if reader.keyword("exists") {
        return Some(presence);
    }
    reader.at = begin;
    None
}

fn text_test(reader: &mut Reader<'_>) -> Result<TextTest, BadAssertion> {
    if reader.symbol("==") {
        return Ok(TextTest::Equals(quoted(reader)?));
    }
    if reader.symbol("!=") {
        return Ok(TextTest::Differs(quoted(reader)?));
    }
    match found_in_text(reader)? {
        Some(test) => Ok(test),
        None => Err(reader.expected("contains, matches, ==, != or exists")),
    }
}

/// `[not] contains "…"` or `[not] matches /…/`, if that is what comes.
fn found_in_text(reader: &mut Reader<'_>) -> Result<Option<TextTest>, BadAssertion> {
    let negated = reader.keyword("not");
    if reader.keyword("contains") {
        let part = quoted(reader)?;
        return Ok(Some(if negated { TextTest::Lacks(part) } else { TextTest::Contains(part) }));
    }
    if reader.keyword("matches") {
        let pattern = pattern(reader)?;
        return Ok(Some(if negated { TextTest::MatchesNot(pattern) } else { TextTest::Matches(pattern) }));
    }
    if negated { Err(reader.expected("contains, matches or exists")) } else { Ok(None) }
}

fn json(reader: &mut Reader<'_>) -> Result<Assertion, BadAssertion> {
    let path = json_path(reader)?;
    let test = if let Some(presence) = presence(reader) {
        match presence {
            Presence::Exists => JsonTest::Exists,
            Presence::Absent => JsonTest::Absent,
        }
    } else if let Some(comparison) = reader.comparison() {
        JsonTest::Compare(comparison, scalar(reader)?)
    } else if let Some(test) = found_in_text(reader)? {
        JsonTest::Text(test)
    } else {
        return Err(reader.expected("a comparison such as ==, contains, matches or exists"));
    };
    Ok(Assertion::Json(path, test))
}

fn json_path(reader: &mut Reader<'_>) -> Result<JsonPath, BadAssertion> {
    if !reader.symbol("$") {
        return Err(reader.expected("a path that begins with $"));
    }
    let mut steps = Vec::new();
    loop {
        // No space within a path, except in brackets.
        let step = match reader.rest().chars().next() {
            Some('.') => {
                reader.at += 1;
                match reader.take_while(in_plain_name) {
                    "" => return Err(reader.expected("the name of a field")),
                    name => Step::Field(name.to_owned()),
                }
            }
            Some('[') => {
                reader.at += 1;
                let step = in_brackets(reader)?;
                if !reader.symbol("]") {
                    return Err(reader.expected("]"));
                }
                step
            }
            _ => return Ok(JsonPath(steps)),
        };
        if steps.len() == MOST_STEPS {
            return Err(reader.mistake(format!("a path has at most {MOST_STEPS} steps")));
        }
        steps.push(step);
    }
}

fn in_brackets(reader: &mut Reader<'_>) -> Result<Step, BadAssertion> {
    if reader.symbol("*") {
        return Ok(Step::Each);
    }
    let begin = reader.skip_space();
    if reader.rest().starts_with('"') {
        return quoted(reader).map(Step::Field);
    }
    match reader.take_while(|c| c == '-' || c.is_ascii_digit()).parse() {
        Ok(index) => Ok(Step::Element(index)),
        Err(_) => {
            reader.at = begin;
            Err(reader.expected("a number, a name in quotes, or *"))
        }
    }
}

fn scalar(reader: &mut Reader<'_>) -> Result<Scalar, BadAssertion> {
    let begin = reader.skip_space();
    if reader.rest().starts_with('"') {
        return quoted(reader).map(Scalar::Text);
    }
    let word = reader.take_while(|c| !c.is_whitespace());
    match word {
        "true" => return Ok(Scalar::Bool(true)),
        "false" => return Ok(Scalar::Bool(false)),
        "null" => return Ok(Scalar::Null),
        _ => {}
    }
    // What JSON takes for a number, so that "inf" and "0x1f" are none.
    let number = serde_json::from_str::<serde_json::Number>(word).ok();
    let integer = number.as_ref().and_then(serde_json::Number::as_i64).map(Scalar::Integer);
    let double = || number.as_ref()?.as_f64().filter(|number| number.is_finite()).map(Scalar::Number);
    if let Some(scalar) = integer.or_else(double) {
        return Ok(scalar);
    }
    reader.at = begin;
    Err(reader.expected("a text in quotes, a number, true, false or null"))
}

fn latency(reader: &mut Reader<'_>) -> Result<Assertion, BadAssertion> {
    let Some(comparison) = reader.comparison() else {
        return Err(reader.expected("a comparison such as <"));
    };
    let begin = reader.skip_space();
    match reader.take_while(|_| true).parse() {
        Ok(limit) => Ok(Assertion::Latency(comparison, limit)),
        Err(_) => {
            reader.at = begin;
            Err(reader.expected("a duration such as 500ms or 2s"))
        }
    }
}

fn certificate(reader: &mut Reader<'_>) -> Result<Assertion, BadAssertion> {
    if !reader.keyword("days") {
        return Err(reader.expected("days"));
    }
    let Some(comparison) = reader.comparison() else {
        return Err(reader.expected("a comparison such as >"));
    };
    let begin = reader.skip_space();
    match reader.take_while(|c| c == '-' || c.is_ascii_digit()).parse() {
        Ok(days) => Ok(Assertion::CertificateDays(comparison, days)),
        Err(_) => {
            reader.at = begin;
            Err(reader.expected("a number of days"))
        }
    }
}

fn quoted(reader: &mut Reader<'_>) -> Result<String, BadAssertion> {
    if !reader.symbol("\"") {
        return Err(reader.expected("a text in double quotes"));
    }
    let mut text = String::new();
    while let Some(c) = reader.next() {
        match c {
            '"' => return Ok(text),
            '\\' => {
                let begin = reader.at;
                text.push(match reader.next() {
                    Some(c @ ('"' | '\\')) => c,
                    Some('n') => '\n',
                    Some('r') => '\r',
                    Some('t') => '\t',
                    _ => {
                        reader.at = begin;
                        return Err(reader.expected(r#"one of " \ n r t behind the backslash"#));
                    }
                });
            }
            c => text.push(c),
        }
    }
    Err(reader.expected("the closing \""))
}

fn pattern(reader: &mut Reader<'_>) -> Result<Pattern, BadAssertion> {
    if !reader.symbol("/") {
        return Err(reader.expected("a regular expression between slashes"));
    }
    let begin = reader.at;
    loop {
        match reader.next() {
            Some('/') => break,
            Some('\\') => drop(reader.next()),
            Some(_) => {}
            None => return Err(reader.expected("the closing /")),
        }
    }
    let source = &reader.text[begin..reader.at - 1];
    Pattern::new(source).map_err(|message| {
        reader.at = begin;
        reader.mistake(message)
    })
}

/// The expression, and how much of it was read.
struct Reader<'a> {
    text: &'a str,
    /// In bytes, at the border of a character.
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest().chars().next()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    /// Answers with where it then is.
    fn skip_space(&mut self) -> usize {
        self.take_while(char::is_whitespace);
        self.at
    }

    fn word(&mut self) -> &'a str {
        self.take_while(|c| c.is_ascii_alphabetic())
    }

    /// Reads `keyword` if it comes next, as a whole word.
    fn keyword(&mut self, keyword: &str) -> bool {
        let begin = self.at;
        self.skip_space();
        let there = self.word() == keyword;
        if !there {
            self.at = begin;
        }
        there
    }

    /// Reads `symbol` if it comes next. The space before it is gone either way, so that a mistake is told at
    /// what stands there.
    fn symbol(&mut self, symbol: &str) -> bool {
        self.skip_space();
        let there = self.rest().starts_with(symbol);
        if there {
            self.at += symbol.len();
        }
        there
    }

    fn comparison(&mut self) -> Option<Comparison> {
        let comparisons = Comparison::SIGNS;
        comparisons.iter().find(|(sign, _)| self.symbol(sign)).map(|(_, comparison)| *comparison)
    }

    fn expected(&mut self, what: &str) -> BadAssertion {
        self.skip_space();
        let found: String = self.rest().chars().take_while(|c| !c.is_whitespace()).take(20).collect();
        self.mistake(match found.as_str() {
            "" => format!("expected {what}, but the expression ends"),
            found => format!("expected {what}, found {found:?}"),
        })
    }

    fn mistake(&self, message: String) -> BadAssertion {
        BadAssertion { column: self.text[..self.at].chars().count() + 1, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_the_language_is_read() {
        for text in [
            "status in 200..299",
            "status in 200..299, 304, 401..403",
            "status == 200",
            "status != 500",
            "body contains \"x\"",
            "body not contains \"Exception: \\\"boom\\\"\"",
            "body matches /x+\\/y/",
            "body not matches /(?i)error/",
            "body == \"pong\"",
            "json $ exists",
            "json $.status == \"ok\"",
            "json $.queue[\"depth now\"][-1] <= 3.5",
            "json $.checks[*].ok == true",
            "json $.error not exists",
            "json $.error == null",
            "json $.version matches /^2\\./",
            "header content-type contains \"json\"",
            "header x-powered-by not exists",
            "latency < 500ms",
            "latency <= 1m 30s",
            "certificate days > 14",
        ] {
            assert_eq!(text.parse::<Assertion>().map(|assertion| assertion.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn the_page_about_the_language_is_right() {
        let page = include_str!("../../../../docs/checks.md");
        let (_, list) = page.split_once("```assertion\n").unwrap();
        let (list, _) = list.split_once("```").unwrap();
        for text in list.lines() {
            assert_eq!(text.parse::<Assertion>().map(|assertion| assertion.to_string()), Ok(text.to_owned()));
        }
        assert!(list.lines().count() > 10);
    }

    #[test]
    fn space_and_the_case_of_headers_do_not_matter() {
        let tight: Assertion = "status==200".parse().unwrap();
        assert_eq!(tight, "  status  ==  200  ".parse().unwrap());
        let header: Assertion = "header Content-Type == \"a\"".parse().unwrap();
        assert_eq!(header, "header content-type==\"a\"".parse().unwrap());
    }

    #[test]
    fn a_mistake_is_told_with_its_place() {
        for (text, told) in [
            (
                "",
                "column 1: expected status, body, header, json, latency or certificate, but the expression ends",
            ),
            (
                "stat == 200",
                "column 1: expected status, body, header, json, latency or certificate, found \"stat\"",
            ),
            ("status 200", "column 8: expected in, or a comparison such as ==, found \"200\""),
            ("status == abc", "column 11: expected a status code from 100 to 999, found \"abc\""),
            ("status == 42", "column 11: expected a status code from 100 to 999, found \"42\""),
            ("status in 299..200", "column 16: the range is empty: 200 is less than 299"),
            ("status == 200 or 201", "column 15: expected the end, found \"or\""),
            ("body contains ok", "column 15: expected a text in double quotes, found \"ok\""),
            ("body contains \"é", "column 17: expected the closing \", but the expression ends"),
            (
                r#"body contains "a\q""#,
                r#"column 18: expected one of " \ n r t behind the backslash, found "q\"""#,
            ),
            ("body not equals \"x\"", "column 10: expected contains, matches or exists, found \"equals\""),
            ("body matches /(/", "column 15: not a regular expression: unclosed group"),
            ("body matches /x", "column 16: expected the closing /, but the expression ends"),
            ("json status == 1", "column 6: expected a path that begins with $, found \"status\""),
            ("json $..a == 1", "column 8: expected the name of a field, found \".a\""),
            ("json $[x] == 1", "column 8: expected a number, a name in quotes, or *, found \"x]\""),
            (
                "json $.a == 0x1f",
                "column 13: expected a text in quotes, a number, true, false or null, found \"0x1f\"",
            ),
            ("header == \"x\"", "column 8: expected the name of a header, found \"==\""),
            ("latency < 500", "column 11: expected a duration such as 500ms or 2s, found \"500\""),
            ("certificate > 14", "column 13: expected days, found \">\""),
        ] {
            assert_eq!(text.parse::<Assertion>().unwrap_err().to_string(), told);
        }
    }

    #[test]
    fn what_would_take_endless_memory_is_refused() {
        let huge = [
            "body matches /\\w{1000}{1000}/".to_owned(),
            format!("body matches /{}/", "a".repeat(501)),
            format!("body contains \"{}\"", "a".repeat(LONGEST)),
            format!("json ${} exists", "[*]".repeat(MOST_STEPS + 1)),
            format!("body matches /{}/", "(".repeat(60) + &")".repeat(60)),
        ];
        for text in huge {
            assert!(text.parse::<Assertion>().is_err(), "{text}");
        }
    }
}
