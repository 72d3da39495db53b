//! Templates: text with variables, such as `/users/${id}`.
//!
//! A variable is `${` and its name up to the next `}`. Directly before a `{`, `$$` stands for one dollar sign: `$${` is the
//! text `${`, and `$$${price}` is a dollar sign and a variable. All other dollar signs and all other braces are text, so
//! that JSON and query options such as `$top` need no escapes.

use hob_units::nearest;

use crate::{Mistake, Reader};

/// Maximum number of characters of a name that an error repeats.
const MAX_SHOWN: usize = 40;

/// A text with variables. `V` is the type of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template<V>(Vec<Part<V>>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<V> {
    Text(String),
    Variable(V),
}

/// How a value is escaped, so that it cannot change the structure around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    Nothing,
    /// Percent-encodes everything except letters, digits and `-._~`.
    Url,
    /// Removes control characters.
    Header,
    /// Escapes for a JSON string.
    Json,
}

impl<V> Template<V> {
    /// Reads a template. `find` returns the variable with a given name, or an error such as [`unknown_variable`].
    pub fn parse(text: &str, mut find: impl FnMut(&str) -> Result<V, String>) -> Result<Self, Mistake> {
        let mut reader = Reader::new(text);
        let mut parts = Vec::new();
        loop {
            parts.push(Part::Text(reader.take_while(|c| c != '$').to_owned()));
            let dollars = reader.take_while(|c| c == '$');
            if dollars.is_empty() {
                return Ok(parts.into_iter().collect());
            }
            if !reader.rest().starts_with('{') {
                parts.push(Part::Text(dollars.to_owned()));
                continue;
            }
            parts.push(Part::Text("$".repeat(dollars.len() / 2)));
            if dollars.len() % 2 == 1 {
                parts.push(Part::Variable(variable(&mut reader, &mut find)?));
            }
        }
    }

    /// Neighbouring parts of text are joined, and no text is empty.
    #[must_use]
    pub fn parts(&self) -> &[Part<V>] {
        &self.0
    }

    #[must_use]
    pub fn into_parts(self) -> Vec<Part<V>> {
        self.0
    }

    pub fn variables(&self) -> impl Iterator<Item = &V> {
        self.0.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Variable(variable) => Some(variable),
        })
    }

    /// The text, if it has no variables.
    #[must_use]
    pub fn fixed(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }
}

impl<V> FromIterator<Part<V>> for Template<V> {
    fn from_iter<I: IntoIterator<Item = Part<V>>>(parts: I) -> Self {
        let mut joined: Vec<Part<V>> = Vec::new();
        for part in parts {
            match (joined.last_mut(), part) {
                (_, Part::Text(text)) if text.is_empty() => {}
                (Some(Part::Text(before)), Part::Text(text)) => before.push_str(&text),
                (_, part) => joined.push(part),
            }
        }
        Self(joined)
    }
}

impl Escape {
    /// Appends an escaped value.
    pub fn write(self, out: &mut String, value: &str) {
        match self {
            Self::Nothing => out.push_str(value),
            Self::Url => {
                for byte in value.bytes() {
                    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                        out.push(char::from(byte));
                    } else {
                        out.push_str(&format!("%{byte:02X}"));
                    }
                }
            }
            Self::Header => out.extend(value.chars().filter(|c| !c.is_control())),
            Self::Json => {
                let quoted = serde_json::Value::from(value).to_string();
                out.push_str(&quoted[1..quoted.len() - 1]);
            }
        }
    }

    #[must_use]
    pub fn apply(self, value: &str) -> String {
        let mut out = String::new();
        self.write(&mut out, value);
        out
    }
}

/// The error message for an unknown variable. Suggests the known variable with the most similar name.
pub fn unknown_variable<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    let shown: String = name.chars().take(MAX_SHOWN).collect();
    let unknown = format!("unknown variable `{shown}`");
    match nearest(name.trim(), known) {
        Some(near) => format!("{unknown}; write `${{{near}}}`"),
        None => unknown,
    }
}

/// Reads `{name}`. An error has the position of the dollar sign before it.
fn variable<V>(reader: &mut Reader<'_>, find: impl FnOnce(&str) -> Result<V, String>) -> Result<V, Mistake> {
    let at_dollar = reader.mistake("").column - 1;
    let mistake = |message: String| Mistake { column: at_dollar, message };
    reader.directly("{");
    let name = reader.take_while(|c| c != '}');
    if !reader.directly("}") {
        return Err(mistake("`${` without `}`; write `$${` for the text `${`".to_owned()));
    }
    if name.is_empty() {
        return Err(mistake("`${}` has no name; write `$${}` for the text `${}`".to_owned()));
    }
    find(name).map_err(mistake)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 3] = ["id", "login", "data.court"];

    fn parse(text: &str) -> Result<Template<usize>, Mistake> {
        Template::parse(text, |name| {
            NAMES.iter().position(|known| *known == name).ok_or_else(|| unknown_variable(name, NAMES))
        })
    }

    /// The template with its variables in angle brackets.
    fn shown(text: &str) -> String {
        let template = parse(text).unwrap();
        let part = |part: &Part<usize>| match part {
            Part::Text(text) => text.clone(),
            Part::Variable(index) => format!("<{}>", NAMES[*index]),
        };
        template.parts().iter().map(part).collect()
    }

    #[test]
    fn dollar_and_brace_make_a_variable() {
        for (text, expected) in [
            ("", ""),
            ("/users/${id}?l=${login}", "/users/<id>?l=<login>"),
            ("${id}${data.court}", "<id><data.court>"),
            (r#"{"a": {"b": "{id}"}, "c": ${id}}"#, r#"{"a": {"b": "{id}"}, "c": <id>}"#),
            ("/list?$top=5&$$x=$", "/list?$top=5&$$x=$"),
            ("ö${id}ü", "ö<id>ü"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn doubled_dollar_before_a_brace_is_one_dollar() {
        for (text, expected) in [
            ("$${id}", "${id}"),
            ("$$${id}", "$<id>"),
            ("$$$${id}", "$${id}"),
            ("$${", "${"),
            ("$${$${${id}", "${${<id>"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn error_has_a_column_and_names_the_variable() {
        for (text, expected) in [
            ("/ä/${lgoin}", "column 4: unknown variable `lgoin`; write `${login}`"),
            ("${ id }", "column 1: unknown variable ` id `; write `${id}`"),
            ("$$${password}", "column 3: unknown variable `password`"),
            ("a ${id", "column 3: `${` without `}`; write `$${` for the text `${`"),
            ("${}", "column 1: `${}` has no name; write `$${}` for the text `${}`"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), expected, "{text}");
        }
        let long = parse(&format!("${{{}}}", "x".repeat(100_000))).unwrap_err();
        assert!(long.message.len() < 100, "{}", long.message.len());
    }

    #[test]
    fn fixed_text_has_no_variables() {
        assert_eq!(parse("").unwrap().fixed(), Some(""));
        assert_eq!(parse("a$${id}b").unwrap().fixed(), Some("a${id}b"));
        assert_eq!(parse("${id}").unwrap().fixed(), None);
        assert_eq!(parse("a${id}${login}").unwrap().variables().collect::<Vec<_>>(), [&0, &1]);
    }

    #[test]
    fn value_cannot_change_the_structure_around_it() {
        let value = "a/b \"c\"*ö~\r\n";
        assert_eq!(Escape::Nothing.apply(value), value);
        assert_eq!(Escape::Url.apply(value), "a%2Fb%20%22c%22%2A%C3%B6~%0D%0A");
        assert_eq!(Escape::Header.apply(value), "a/b \"c\"*ö~");
        assert_eq!(Escape::Json.apply(value), r#"a/b \"c\"*ö~\r\n"#);
    }

    proptest! {
        #[test]
        fn every_text_can_be_escaped(text in "[$${}a]{0,12}") {
            // The rule of the documentation: double the dollar signs before each `{`.
            let mut escaped = String::new();
            let mut dollars = 0;
            for c in text.chars() {
                if c == '{' {
                    escaped.push_str(&"$".repeat(dollars));
                }
                dollars = if c == '$' { dollars + 1 } else { 0 };
                escaped.push(c);
            }
            let template = parse(&escaped).unwrap();
            prop_assert_eq!(template.fixed(), Some(text.as_str()), "{}", escaped);
        }

        #[test]
        fn no_input_panics(text in "([$${}]|id|\\PC){0,20}") {
            if let Err(mistake) = parse(&text) {
                prop_assert!(mistake.column >= 1 && mistake.column <= text.chars().count());
            }
        }
    }
}
