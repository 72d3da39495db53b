//! Reads a document in two steps: the text into a value, the value into a type.

use std::cell::OnceCell;

use hob_units::plain_serde_error;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::UserMessageFormatter;

use crate::mistake::{Mistake, Position};
use crate::outline::Outline;
use crate::value::Unique;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Toml,
    Yaml,
}

/// A document that was parsed, but not yet read into a type.
#[derive(Debug)]
pub struct Document<'t> {
    text: &'t str,
    format: Format,
    value: Value,
    /// Created for the first error.
    outline: OnceCell<Option<Outline>>,
}

impl<'t> Document<'t> {
    /// Parses a text of at most `max_bytes`.
    pub fn parse(text: &'t str, format: Format, max_bytes: usize) -> Result<Self, Mistake> {
        if text.len() > max_bytes {
            let message = format!("the document has {} bytes, more than {max_bytes}", text.len());
            return Err(Mistake { at: Position::START, field: String::new(), message });
        }
        let Unique(value) = match format {
            Format::Json => parse_json(text),
            Format::Toml => parse_toml(text),
            Format::Yaml => parse_yaml(text),
        }?;
        Ok(Self { text, format, value, outline: OnceCell::new() })
    }

    /// Reads the document into a type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Mistake> {
        serde_path_to_error::deserialize(&self.value).map_err(|error| {
            let message = plain_serde_error(&error.inner().to_string());
            self.mistake(&field_of(error.path()), message)
        })
    }

    /// An error in a field, such as `scenario[0].step[2].request`. If the field does not exist, the position is that of its
    /// innermost existing parent.
    pub fn mistake(&self, field: &str, message: impl Into<String>) -> Mistake {
        let outline = self.outline.get_or_init(|| match self.format {
            Format::Json => Outline::of_json(self.text),
            Format::Toml => Outline::of_toml(self.text),
            Format::Yaml => Outline::of_yaml(self.text, yaml_options(self.text)),
        });
        let at = outline.as_ref().map_or(Position::START, |outline| outline.position(self.text, field));
        Mistake { at, field: field.to_owned(), message: message.into() }
    }
}

fn parse_json(text: &str) -> Result<Unique, Mistake> {
    let mistake = |field, error: &serde_json::Error| {
        let (line, column) = (error.line(), error.column());
        let message = without(&error.to_string(), &format!(" at line {line} column {column}"));
        Mistake { at: Position { line: line.max(1), column: column.max(1) }, field, message }
    };
    let mut parser = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut parser)
        .map_err(|error| mistake(field_of(error.path()), error.inner()))?;
    parser.end().map_err(|error| mistake(String::new(), &error))?;
    Ok(value)
}

fn parse_toml(text: &str) -> Result<Unique, Mistake> {
    toml::from_str(text).map_err(|error| {
        let byte = error.span().map_or(0, |span| span.start);
        Mistake {
            at: Position::of_byte(text, byte),
            field: String::new(),
            message: error.message().to_owned(),
        }
    })
}

fn parse_yaml(text: &str) -> Result<Unique, Mistake> {
    let mut field = String::new();
    let value = serde_saphyr::with_deserializer_from_str_with_options(text, yaml_options(text), |parser| {
        serde_path_to_error::deserialize(parser).map_err(|error| {
            field = field_of(error.path());
            error.into_inner()
        })
    });
    value.map_err(|error| {
        let message = error.render_with_formatter(&UserMessageFormatter);
        let Some(location) = error.location() else { return Mistake { at: Position::START, field, message } };
        let (line, column) = (location.line(), location.column());
        let message = without(&message, &format!(" at line {line}, column {column}"));
        let whole = |place: u64| usize::try_from(place).unwrap_or(usize::MAX);
        Mistake { at: Position { line: whole(line), column: whole(column) }, field, message }
    })
}

/// The path of a field, without unknown parts at its end, which the library writes as `?`.
fn field_of(path: &serde_path_to_error::Path) -> String {
    if path.iter().next().is_none() {
        return String::new();
    }
    let path = path.to_string();
    path.trim_end_matches('?').trim_end_matches('.').to_owned()
}

/// Removes the position from the end of a message, because [`Mistake`] has it in a field.
fn without(message: &str, position: &str) -> String {
    message.strip_suffix(position).unwrap_or(message).to_owned()
}

/// Limits that are proportional to the length of the text. The parser's defaults would refuse a file with more than
/// 30,000 monitors, or an anchor with more than 100 aliases.
fn yaml_options(text: &str) -> serde_saphyr::Options {
    let bytes = text.len();
    // Limits aliases of aliases. Events that an alias replays also count towards the other limits.
    let replayed = bytes.clamp(10_000, 1_000_000);
    serde_saphyr::options! {
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_events: replayed + 2 * bytes,
            max_nodes: replayed + bytes,
            max_aliases: bytes,
            max_anchors: bytes,
            max_merge_keys: bytes,
            max_documents: 1,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: replayed },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Garden {
        beds: Vec<BTreeMap<String, u32>>,
    }

    #[track_caller]
    fn mistake(text: &str, format: Format) -> (usize, usize, String, String) {
        let read = Document::parse(text, format, 1000).and_then(|document| document.read::<Garden>());
        let Mistake { at, field, message } = read.unwrap_err();
        (at.line, at.column, field, message)
    }

    #[track_caller]
    fn check(text: &str, format: Format, line: usize, column: usize, field: &str, message: &str) {
        let found = mistake(text, format);
        assert_eq!((found.0, found.1, found.2.as_str()), (line, column, field), "{text}: {found:?}");
        assert!(found.3.contains(message) && !found.3.contains("line"), "{text}: {found:?}");
    }

    #[test]
    fn all_formats_read_the_same() {
        for (format, text) in [
            (Format::Json, r#"{"beds": [{"rose": 1}, {"oak": 2}]}"#),
            (Format::Toml, "[[beds]]\nrose = 1\n[[beds]]\noak = 2"),
            (Format::Yaml, "beds:\n- rose: 1\n- {oak: 2}"),
        ] {
            let garden: Garden = Document::parse(text, format, 1000).unwrap().read().unwrap();
            assert_eq!((garden.beds[0]["rose"], garden.beds[1]["oak"]), (1, 2), "{format:?}");
        }
    }

    #[test]
    fn error_in_a_value_has_position_and_field() {
        let expected = "invalid type: string \"x\", expected a whole number";
        check("{\n \"beds\": [{},\n {\"a.b\": \"x\"}]}", Format::Json, 3, 10, "beds[1].a.b", expected);
        check("[[beds]]\n[[beds]]\na = 1\n\"a.b\" = \"x\"", Format::Toml, 4, 1, "beds[1].a.b", expected);
        check("beds:\n- {}\n- a: 1\n  a.b: x", Format::Yaml, 4, 8, "beds[1].a.b", expected);
        check("beds: []\nbad: 1", Format::Yaml, 2, 6, "bad", "unknown field `bad`");
        check("{}", Format::Json, 1, 1, "", "missing field `beds`");
    }

    #[test]
    fn syntax_error_has_a_position() {
        check("{\"beds\":[{\"b\":1,,}]}", Format::Json, 1, 17, "beds[0]", "key must be a string");
        check("{\"beds\":[}", Format::Json, 1, 10, "beds[0]", "expected value");
        check("{\"beds\":[]}\n1", Format::Json, 2, 1, "", "trailing characters");
        check("a = 1\nb = [", Format::Toml, 2, 6, "", "unclosed array");
        check("beds:\n- a: [", Format::Yaml, 2, 6, "beds[0].a", "unclosed bracket");
    }

    #[test]
    fn duplicate_key_is_an_error_in_every_format() {
        assert!(mistake(r#"{"beds": [], "beds": []}"#, Format::Json).3.contains("duplicate key \"beds\""));
        assert!(mistake("beds = []\nbeds = []", Format::Toml).3.contains("duplicate key"));
        assert!(mistake("beds: []\nbeds: []", Format::Yaml).3.contains("duplicate mapping key"));
    }

    #[test]
    fn one_anchor_may_have_many_aliases() {
        let uses: String = (0..1000).map(|n| format!("- {{<<: *common, a{n}: 2}}\n")).collect();
        let yaml = format!("beds:\n- &common {{rose: 1}}\n{uses}");
        let garden: Garden = Document::parse(&yaml, Format::Yaml, 1 << 20).unwrap().read().unwrap();
        assert_eq!((garden.beds.len(), garden.beds[1000]["rose"]), (1001, 1));
    }

    #[test]
    fn long_documents_and_alias_bombs_are_rejected() {
        assert!(mistake(&" ".repeat(1001), Format::Yaml).3.contains("more than 1000"));
        let levels: String =
            (1..8).map(|n| format!("l{n}: &l{n} [{}]\n", format!("*l{}, ", n - 1).repeat(10))).collect();
        let bomb = format!("l0: &l0 [a]\n{levels}");
        assert!(
            mistake(&bomb, Format::Yaml).3.contains("too large or too complex"),
            "{:?}",
            mistake(&bomb, Format::Yaml)
        );
    }
}
