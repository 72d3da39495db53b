//! Paths into JSON documents.
//!
//! A path consists of `$` and steps: `.name`, `['any name']` or `["any name"]`, `[0]`, `[-1]` from the end, and `[*]`
//! or `.*` for each. This is RFC 9535 without filters, slices and descendants (`..`). Without these, a path visits
//! every value at most once, so it is never slow.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::{Mistake, Quoted, Reader};

/// Maximum length of a path in bytes.
const MAX_BYTES: usize = 1000;
const MAX_STEPS: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath(pub Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Field(String),
    /// A negative index counts from the end.
    Element(i64),
    /// Each element of an array, each value of an object.
    Each,
}

impl JsonPath {
    /// The values at the path: none, one, or several with [`Step::Each`].
    #[must_use]
    pub fn find<'a>(&self, document: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![document];
        for step in &self.0 {
            let mut next = Vec::with_capacity(found.len());
            for value in found {
                step.take(value, &mut next);
            }
            found = next;
        }
        found
    }

    /// Reads a path that is part of a larger expression.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Mistake> {
        if !reader.symbol("$") {
            return Err(reader.expected("a path that begins with $"));
        }
        let mut steps = Vec::new();
        // Spaces are allowed only in brackets.
        while let Some(step) = Step::read(reader)? {
            if steps.len() == MAX_STEPS {
                return Err(reader.mistake(format!("a path has at most {MAX_STEPS} steps")));
            }
            steps.push(step);
        }
        Ok(Self(steps))
    }
}

impl FromStr for JsonPath {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Self, Mistake> {
        let mut reader = Reader::new(text);
        if text.len() > MAX_BYTES {
            return Err(reader.mistake(format!("a path has at most {MAX_BYTES} bytes")));
        }
        let path = Self::read(&mut reader)?;
        reader.end()?;
        Ok(path)
    }
}

impl Step {
    fn take<'a>(&self, value: &'a Value, found: &mut Vec<&'a Value>) {
        match (self, value) {
            (Self::Field(name), Value::Object(fields)) => found.extend(fields.get(name)),
            (Self::Element(place), Value::Array(elements)) => {
                let index = match usize::try_from(*place) {
                    Ok(index) => Some(index),
                    Err(_) => {
                        let from_end = usize::try_from(place.unsigned_abs()).ok();
                        from_end.and_then(|n| elements.len().checked_sub(n))
                    }
                };
                found.extend(index.and_then(|index| elements.get(index)));
            }
            (Self::Each, Value::Array(elements)) => found.extend(elements),
            (Self::Each, Value::Object(fields)) => found.extend(fields.values()),
            _ => {}
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Option<Self>, Mistake> {
        if reader.directly(".") {
            if reader.directly("*") {
                return Ok(Some(Self::Each));
            }
            return match reader.take_while(in_plain_name) {
                "" => Err(reader.expected("the name of a field")),
                name => Ok(Some(Self::Field(name.to_owned()))),
            };
        }
        if !reader.directly("[") {
            return Ok(None);
        }
        let step = Self::in_brackets(reader)?;
        if reader.symbol("]") { Ok(Some(step)) } else { Err(reader.expected("]")) }
    }

    fn in_brackets(reader: &mut Reader<'_>) -> Result<Self, Mistake> {
        if reader.symbol("*") {
            return Ok(Self::Each);
        }
        for (symbol, quote) in [("\"", '"'), ("'", '\'')] {
            if reader.symbol(symbol) {
                return reader.quoted_until(quote).map(Self::Field);
            }
        }
        let begin = reader.place();
        match reader.take_while(|c| c == '-' || c.is_ascii_digit()).parse() {
            Ok(index) => Ok(Self::Element(index)),
            Err(_) => {
                reader.go_back(begin);
                Err(reader.expected("a number, a name in quotes, or *"))
            }
        }
    }
}

/// The text can be parsed back to the same path, unless escapes make it longer than the maximum.
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

/// Whether a field can be written after a dot.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(in_plain_name)
}

fn in_plain_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn find(path: &str, document: &Value) -> Vec<Value> {
        path.parse::<JsonPath>().unwrap().find(document).into_iter().cloned().collect()
    }

    #[test]
    fn steps_select_values() {
        let document = json!({"a": {"b c": [1, 2, 3]}, "d": [{"e": true}, {"e": false}, {"f": 0}], "": null});
        for (path, found) in [
            ("$", vec![document.clone()]),
            ("$.a['b c'][0]", vec![json!(1)]),
            ("$[ 'a' ][\"b c\"][ -1 ]", vec![json!(3)]),
            ("$.a['b c'][-4]", vec![]),
            ("$.a['b c'][3]", vec![]),
            ("$.d[*].e", vec![json!(true), json!(false)]),
            ("$.d.*.f", vec![json!(0)]),
            ("$.a.*[*]", vec![json!(1), json!(2), json!(3)]),
            ("$['']", vec![Value::Null]),
            ("$.a[0]", vec![]),
            ("$.d.e", vec![]),
            ("$.missing.deeper[*]", vec![]),
            ("$[-9223372036854775808]", vec![]),
        ] {
            assert_eq!(find(path, &document), found, "{path}");
        }
    }

    #[test]
    fn error_has_a_column() {
        for (path, expected) in [
            ("", "column 1: expected a path that begins with $, but the expression ends"),
            ("a.b", "column 1: expected a path that begins with $, found \"a.b\""),
            ("$.", "column 3: expected the name of a field, but the expression ends"),
            ("$..a", "column 3: expected the name of a field, found \".a\""),
            ("$.ä[x]", "column 5: expected a number, a name in quotes, or *, found \"x]\""),
            ("$[?@.a]", "column 3: expected a number, a name in quotes, or *, found \"?@.a]\""),
            ("$[0:2]", "column 4: expected ], found \":2]\""),
            ("$['a", "column 5: expected the closing ', but the expression ends"),
            ("$.a b", "column 5: expected the end, found \"b\""),
        ] {
            assert_eq!(path.parse::<JsonPath>().unwrap_err().to_string(), expected, "{path}");
        }
    }

    #[test]
    fn length_of_a_path_is_bounded() {
        for path in [format!("${}", "[*]".repeat(MAX_STEPS + 1)), format!("$.{}", "a".repeat(MAX_BYTES))] {
            assert!(path.parse::<JsonPath>().is_err());
        }
        assert!(format!("${}", "[*]".repeat(MAX_STEPS)).parse::<JsonPath>().is_ok());
    }

    fn name() -> impl Strategy<Value = String> {
        prop_oneof!["[a-c_-]{1,2}", "[a \"'\\\\\n\r\t\\]]{0,6}", "\\PC{0,4}"]
    }

    fn path() -> impl Strategy<Value = JsonPath> {
        let step = prop_oneof![
            3 => name().prop_map(Step::Field),
            2 => (-4_i64..4).prop_map(Step::Element),
            1 => any::<i64>().prop_map(Step::Element),
            2 => Just(Step::Each),
        ];
        prop::collection::vec(step, 0..6).prop_map(JsonPath)
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), name().prop_map(Value::from)];
        leaf.prop_recursive(4, 40, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    /// The paths of all values in a document, without [`Step::Each`].
    fn places(value: &Value, here: &JsonPath, into: &mut Vec<JsonPath>) {
        let mut go_on = |step: Step, value: &Value| {
            let there = JsonPath(here.0.iter().cloned().chain([step]).collect());
            places(value, &there, into);
        };
        match value {
            Value::Array(elements) => {
                for (value, place) in elements.iter().zip(0..) {
                    go_on(Step::Element(place), value);
                }
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    go_on(Step::Field(name.clone()), value);
                }
            }
            _ => {}
        }
        into.push(here.clone());
    }

    proptest! {
        #[test]
        fn display_parses_back_to_the_same_path(path in path()) {
            let shown = path.to_string();
            prop_assert_eq!(shown.parse::<JsonPath>(), Ok(path), "{}", shown);
        }

        #[test]
        fn no_input_panics(text in "\\$?([.\\[\\]*'\"\\\\a0-]|\\PC){0,20}") {
            match text.parse::<JsonPath>() {
                Ok(path) => prop_assert_eq!(path.to_string().parse::<JsonPath>(), Ok(path)),
                Err(mistake) => prop_assert!(mistake.column <= text.chars().count() + 1),
            }
        }

        #[test]
        fn every_value_is_found_at_most_once(document in document(), path in path()) {
            let mut all = Vec::new();
            places(&document, &JsonPath(Vec::new()), &mut all);
            for place in &all {
                prop_assert_eq!(place.find(&document).len(), 1);
            }
            let mut found: Vec<*const Value> = path.find(&document).into_iter().map(std::ptr::from_ref).collect();
            prop_assert!(found.len() <= all.len());
            let count = found.len();
            found.sort_unstable();
            found.dedup();
            prop_assert_eq!(found.len(), count);
        }
    }
}
