//! Parses assertions, from left to right without backtracking.

use std::ops::RangeInclusive;

use hob_expression::{JsonPath, Mistake, Reader};
use http::HeaderName;

use super::{Assertion, Comparison, HeaderTest, JsonTest, MAX_BYTES, Pattern, Scalar, TextTest};

const MAX_RANGES: usize = 16;
const STATUSES: RangeInclusive<u16> = 100..=999;

pub(super) fn parse(text: &str) -> Result<Assertion, Mistake> {
    let mut reader = Reader::new(text);
    if text.len() > MAX_BYTES {
        return Err(reader.mistake(format!("an assertion must have at most {MAX_BYTES} bytes")));
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
            reader.go_back(begin);
            return Err(reader.expected("status, body, header, json, latency or certificate"));
        }
    };
    reader.end()?;
    Ok(assertion)
}

fn comparison(reader: &mut Reader<'_>) -> Option<Comparison> {
    Comparison::ALL.into_iter().find(|comparison| reader.symbol(comparison.as_str()))
}

fn status(reader: &mut Reader<'_>) -> Result<Assertion, Mistake> {
    if let Some(comparison) = comparison(reader) {
        return Ok(Assertion::Status(comparison, status_code(reader)?));
    }
    if !reader.keyword("in") {
        return Err(reader.expected("in, or a comparison such as =="));
    }
    let mut ranges = vec![status_range(reader)?];
    while reader.symbol(",") {
        if ranges.len() == MAX_RANGES {
            return Err(reader.mistake(format!("at most {MAX_RANGES} ranges are allowed")));
        }
        ranges.push(status_range(reader)?);
    }
    Ok(Assertion::StatusIn(ranges))
}

fn status_range(reader: &mut Reader<'_>) -> Result<RangeInclusive<u16>, Mistake> {
    let first = status_code(reader)?;
    if !reader.symbol("..") {
        return Ok(first..=first);
    }
    let begin = reader.skip_space();
    let last = status_code(reader)?;
    if last < first {
        reader.go_back(begin);
        return Err(reader.mistake(format!("the range is empty: {last} is less than {first}")));
    }
    Ok(first..=last)
}

fn status_code(reader: &mut Reader<'_>) -> Result<u16, Mistake> {
    let begin = reader.skip_space();
    let digits = reader.take_while(|c| c.is_ascii_digit());
    match digits.parse() {
        Ok(code) if STATUSES.contains(&code) => Ok(code),
        _ => {
            reader.go_back(begin);
            Err(reader.expected("a status code from 100 to 999"))
        }
    }
}

fn header(reader: &mut Reader<'_>) -> Result<Assertion, Mistake> {
    let begin = reader.skip_space();
    let name = reader.take_while(|c| !c.is_whitespace() && !"=!<>\"/".contains(c));
    let Ok(name) = name.parse::<HeaderName>() else {
        reader.go_back(begin);
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

/// `exists` or `not exists`, if it is next.
fn presence(reader: &mut Reader<'_>) -> Option<Presence> {
    let begin = reader.place();
    let presence = if reader.keyword("not") { Presence::Absent } else { Presence::Exists };
    if reader.keyword("exists") {
        return Some(presence);
    }
    reader.go_back(begin);
    None
}

fn text_test(reader: &mut Reader<'_>) -> Result<TextTest, Mistake> {
    if reader.symbol("==") {
        return Ok(TextTest::Equals(reader.quoted()?));
    }
    if reader.symbol("!=") {
        return Ok(TextTest::NotEquals(reader.quoted()?));
    }
    match found_in_text(reader)? {
        Some(test) => Ok(test),
        None => Err(reader.expected("contains, matches, ==, != or exists")),
    }
}

/// `[not] contains "…"` or `[not] matches /…/`, if it is next.
fn found_in_text(reader: &mut Reader<'_>) -> Result<Option<TextTest>, Mistake> {
    let negated = reader.keyword("not");
    if reader.keyword("contains") {
        let part = reader.quoted()?;
        return Ok(Some(if negated { TextTest::NotContains(part) } else { TextTest::Contains(part) }));
    }
    if reader.keyword("matches") {
        let pattern = pattern(reader)?;
        return Ok(Some(if negated { TextTest::NotMatches(pattern) } else { TextTest::Matches(pattern) }));
    }
    if negated { Err(reader.expected("contains, matches or exists")) } else { Ok(None) }
}

fn json(reader: &mut Reader<'_>) -> Result<Assertion, Mistake> {
    let path = JsonPath::read(reader)?;
    let test = if let Some(presence) = presence(reader) {
        match presence {
            Presence::Exists => JsonTest::Exists,
            Presence::Absent => JsonTest::Absent,
        }
    } else if let Some(comparison) = comparison(reader) {
        JsonTest::Compare(comparison, scalar(reader)?)
    } else if let Some(test) = found_in_text(reader)? {
        JsonTest::Text(test)
    } else {
        return Err(reader.expected("a comparison such as ==, contains, matches or exists"));
    };
    Ok(Assertion::Json(path, test))
}

fn scalar(reader: &mut Reader<'_>) -> Result<Scalar, Mistake> {
    let begin = reader.skip_space();
    if reader.rest().starts_with('"') {
        return reader.quoted().map(Scalar::Text);
    }
    let word = reader.take_while(|c| !c.is_whitespace());
    match word {
        "true" => return Ok(Scalar::Bool(true)),
        "false" => return Ok(Scalar::Bool(false)),
        "null" => return Ok(Scalar::Null),
        _ => {}
    }
    // Numbers as in JSON, so "inf" and "0x1f" are refused.
    let number = serde_json::from_str::<serde_json::Number>(word).ok();
    let integer = number.as_ref().and_then(serde_json::Number::as_i64).map(Scalar::Integer);
    let double = || number.as_ref()?.as_f64().filter(|number| number.is_finite()).map(Scalar::Number);
    if let Some(scalar) = integer.or_else(double) {
        return Ok(scalar);
    }
    reader.go_back(begin);
    Err(reader.expected("a text in quotes, a number, true, false or null"))
}

fn latency(reader: &mut Reader<'_>) -> Result<Assertion, Mistake> {
    let Some(comparison) = comparison(reader) else {
        return Err(reader.expected("a comparison such as <"));
    };
    let begin = reader.skip_space();
    match reader.take_while(|_| true).parse() {
        Ok(limit) => Ok(Assertion::Latency(comparison, limit)),
        Err(_) => {
            reader.go_back(begin);
            Err(reader.expected("a duration such as 500ms or 2s"))
        }
    }
}

fn certificate(reader: &mut Reader<'_>) -> Result<Assertion, Mistake> {
    if !reader.keyword("days") {
        return Err(reader.expected("days"));
    }
    let Some(comparison) = comparison(reader) else {
        return Err(reader.expected("a comparison such as >"));
    };
    let begin = reader.skip_space();
    match reader.take_while(|c| c == '-' || c.is_ascii_digit()).parse() {
        Ok(days) => Ok(Assertion::CertificateDays(comparison, days)),
        Err(_) => {
            reader.go_back(begin);
            Err(reader.expected("a number of days"))
        }
    }
}

fn pattern(reader: &mut Reader<'_>) -> Result<Pattern, Mistake> {
    if !reader.symbol("/") {
        return Err(reader.expected("a regular expression between slashes"));
    }
    let begin = reader.place();
    loop {
        match reader.next_char() {
            Some('/') => break,
            Some('\\') => drop(reader.next_char()),
            Some(_) => {}
            None => return Err(reader.expected("the closing /")),
        }
    }
    let source = reader.since(begin).strip_suffix('/').unwrap_or_default();
    Pattern::new(source).map_err(|message| {
        reader.go_back(begin);
        reader.mistake(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_parsed() {
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
    fn documented_assertions_are_parsed() {
        let page = include_str!("../../../../../docs/checks.md");
        let (_, list) = page.split_once("```assertion\n").unwrap();
        let (list, _) = list.split_once("```").unwrap();
        for text in list.lines() {
            assert_eq!(text.parse::<Assertion>().map(|assertion| assertion.to_string()), Ok(text.to_owned()));
        }
        assert!(list.lines().count() > 10);
    }

    #[test]
    fn number_is_parsed_exactly() {
        // Fast float parsers are off by one in the last digit of these.
        for number in ["6.934698245112694e276", "8.383658838626809e-78", "-1.7969314742435888e-9"] {
            let exact = Scalar::Number(number.parse().unwrap());
            let read = format!("json $ == {number}").parse::<Assertion>().unwrap();
            assert_eq!(
                read,
                Assertion::Json(JsonPath(Vec::new()), JsonTest::Compare(Comparison::Equal, exact))
            );
        }
    }

    #[test]
    fn spaces_and_the_case_of_headers_are_ignored() {
        let tight: Assertion = "status==200".parse().unwrap();
        assert_eq!(tight, "  status  ==  200  ".parse().unwrap());
        let header: Assertion = "header Content-Type == \"a\"".parse().unwrap();
        assert_eq!(header, "header content-type==\"a\"".parse().unwrap());
    }

    #[test]
    fn error_has_a_column() {
        for (text, message) in [
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
                r#"column 18: expected one of " \ n r t after the backslash, found "q\"""#,
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
            assert_eq!(text.parse::<Assertion>().unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn assertion_that_needs_too_much_memory_is_refused() {
        let huge = [
            "body matches /\\w{1000}{1000}/".to_owned(),
            format!("body matches /{}/", "a".repeat(501)),
            format!("body contains \"{}\"", "a".repeat(MAX_BYTES)),
            format!("json ${} exists", "[*]".repeat(33)),
            format!("body matches /{}/", "(".repeat(60) + &")".repeat(60)),
        ];
        for text in huge {
            assert!(text.parse::<Assertion>().is_err(), "{text}");
        }
    }
}
