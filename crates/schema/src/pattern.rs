//! A key pattern: literal text and placeholders, `messages:<conversationId>:recent`.

use crate::id::{IdRule, SEPARATOR};

/// The literal and placeholder segments of a family's keys, without the schema's prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// As the file spells it.
    pub text: String,
    pub segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    Literal(String),
    /// An index into the schema's ids.
    Id(usize),
}

/// Why a text is no pattern, where in it, and what to write.
#[derive(Debug)]
pub(crate) struct PatternError {
    pub(crate) offset: usize,
    pub(crate) what: String,
    pub(crate) instead: Option<String>,
}

impl Pattern {
    /// Reads a pattern whose placeholders name declared ids.
    pub(crate) fn parse(text: &str, ids: &[IdRule]) -> Result<Pattern, PatternError> {
        let segments = split(text, ids)?;
        let pattern = Pattern {
            text: text.to_owned(),
            segments,
        };
        pattern.check_boundaries()?;
        pattern.check_separators(ids)?;
        Ok(pattern)
    }

    /// The ids of the placeholders, from left to right.
    pub fn ids(&self) -> impl Iterator<Item = usize> + '_ {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Id(id) => Some(*id),
            Segment::Literal(_) => None,
        })
    }

    /// The pattern as a glob for SCAN MATCH.
    pub fn glob(&self) -> String {
        let mut glob = String::new();
        for segment in &self.segments {
            match segment {
                Segment::Id(_) => glob.push('*'),
                Segment::Literal(text) => push_glob_literal(&mut glob, text),
            }
        }
        glob
    }

    /// A placeholder fills the room between two separators (or braces), so that it has one end.
    fn check_boundaries(&self) -> Result<(), PatternError> {
        for pair in self.segments.windows(2) {
            let problem = match pair {
                [Segment::Id(_), Segment::Id(_)] => "two placeholders touch",
                [Segment::Id(_), Segment::Literal(text)] if !text.starts_with([':', '}']) => {
                    "a placeholder is followed by text that could be part of it"
                }
                [Segment::Literal(text), Segment::Id(_)] if !text.ends_with([':', '{']) => {
                    "a placeholder follows text that could be part of it"
                }
                _ => continue,
            };
            return Err(PatternError {
                offset: 0,
                what: format!("{problem} in {:?}", self.text),
                instead: Some("a colon on both sides: \"user:<userId>:online\"".into()),
            });
        }
        Ok(())
    }

    /// At most one placeholder may hold the separator: then a key is parsed from both ends.
    fn check_separators(&self, ids: &[IdRule]) -> Result<(), PatternError> {
        let raw: Vec<&str> = self
            .ids()
            .map(|id| &ids[id])
            .filter(|id| id.holds_separator())
            .map(|id| id.name.as_str())
            .collect();
        if raw.len() < 2 {
            return Ok(());
        }
        Err(PatternError {
            offset: 0,
            what: format!("<{}> and <{}> may both hold the separator", raw[0], raw[1]),
            instead: Some(format!(
                "no `raw = \":\"` for one of them; its colons are then encoded as %{SEPARATOR:X}"
            )),
        })
    }
}

fn push_glob_literal(glob: &mut String, text: &str) {
    for char in text.chars() {
        if matches!(char, '*' | '?' | '[' | ']' | '\\') {
            glob.push('\\');
        }
        glob.push(char);
    }
}

fn split(text: &str, ids: &[IdRule]) -> Result<Vec<Segment>, PatternError> {
    let error = |offset, what: String, instead: Option<String>| {
        Err(PatternError {
            offset,
            what,
            instead,
        })
    };
    if text.is_empty() {
        return error(
            0,
            "the pattern is empty".into(),
            Some("\"user:<userId>:online\"".into()),
        );
    }
    let mut segments = Vec::new();
    let mut offset = 0;
    while offset < text.len() {
        let rest = &text[offset..];
        if let Some(inside) = rest.strip_prefix('<') {
            let Some((name, _)) = inside.split_once('>') else {
                return error(
                    offset,
                    "a placeholder is not closed".into(),
                    Some(format!("<{inside}>")),
                );
            };
            let Some(id) = ids.iter().position(|id| id.name == name) else {
                let near = crate::source::nearest(name, ids.iter().map(|id| id.name.as_str()));
                let instead = near.map_or_else(
                    || format!("`{name} = {{ max = 128 }}` under [ids]"),
                    |near| format!("<{near}>"),
                );
                return error(
                    offset,
                    format!("<{name}> is not declared under [ids]"),
                    Some(instead),
                );
            };
            segments.push(Segment::Id(id));
            offset += name.len() + 2;
        } else {
            let end = rest.find('<').unwrap_or(rest.len());
            let literal = &rest[..end];
            let bad = literal
                .char_indices()
                .find(|(_, char)| *char == '>' || char.is_control());
            if let Some((at, char)) = bad {
                let what = format!("{char:?} cannot stand in a pattern");
                return error(offset + at, what, Some("a placeholder is written <name>".into()));
            }
            segments.push(Segment::Literal(literal.to_owned()));
            offset += end;
        }
    }
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Form, Raw};

    fn ids() -> Vec<IdRule> {
        let id = |name: &str, separator| IdRule {
            name: name.into(),
            form: Form::Text(Raw {
                separator,
                ..Raw::default()
            }),
            max: 64,
            not: vec![],
            of: None,
            example: "x".into(),
            note: None,
            allow: vec![],
            place: crate::source::Place { line: 1, column: 1 },
        };
        vec![
            id("userId", false),
            id("run", true),
            id("task", false),
            id("path", true),
        ]
    }

    #[test]
    fn a_pattern_is_literals_and_placeholders() {
        let pattern = Pattern::parse("user:<userId>:online", &ids()).unwrap();
        assert_eq!(
            pattern.segments,
            [
                Segment::Literal("user:".into()),
                Segment::Id(0),
                Segment::Literal(":online".into())
            ]
        );
        assert_eq!(pattern.glob(), "user:*:online");
    }

    #[test]
    fn mistakes_say_what_to_write() {
        for (text, instead) in [
            ("user:<userid>", "<userId>"),
            ("user:<userId", "<userId>"),
            ("user:<color>", "`color = { max = 128 }` under [ids]"),
            ("user<userId>", "a colon on both sides: \"user:<userId>:online\""),
            ("", "\"user:<userId>:online\""),
        ] {
            let error = Pattern::parse(text, &ids()).unwrap_err();
            assert_eq!(error.instead.as_deref(), Some(instead), "{text}");
        }
    }

    #[test]
    fn one_placeholder_may_hold_the_separator_two_may_not() {
        assert!(Pattern::parse("task:<run>:<task>", &ids()).is_ok());
        assert!(Pattern::parse("task:<run>:<path>", &ids()).is_err());
    }
}
