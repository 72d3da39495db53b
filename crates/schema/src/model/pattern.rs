//! A key pattern: literal text and placeholders, `messages:<conversationId>:recent`.

use crate::model::id::IdRule;

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

/// Why a text is not a pattern, the position of the error, and what to write.
#[derive(Debug)]
pub(crate) struct PatternError {
    pub(crate) offset: usize,
    pub(crate) message: String,
    pub(crate) suggestion: String,
}

impl Pattern {
    /// Reads a pattern whose placeholders name declared ids.
    pub(crate) fn parse(text: &str, ids: &[IdRule]) -> Result<Pattern, PatternError> {
        let segments = split(text, ids)?;
        Ok(Pattern { text: text.to_owned(), segments })
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
    if text.is_empty() {
        return Err(error(0, "the pattern is empty", "\"user:<userId>:online\""));
    }
    let mut segments = Vec::new();
    let mut offset = 0;
    while offset < text.len() {
        let rest = &text[offset..];
        let (segment, len) = match rest.strip_prefix('<') {
            Some(inside) => placeholder(inside, offset, ids)?,
            None => literal(&rest[..rest.find('<').unwrap_or(rest.len())], offset)?,
        };
        segments.push(segment);
        offset += len;
    }
    Ok(segments)
}

/// A placeholder, and its length including the brackets. `inside` is the text after the opening bracket.
fn placeholder(inside: &str, offset: usize, ids: &[IdRule]) -> Result<(Segment, usize), PatternError> {
    let Some((name, _)) = inside.split_once('>') else {
        return Err(error(offset, "a placeholder is not closed", format!("<{inside}>")));
    };
    match ids.iter().position(|id| id.name == name) {
        Some(id) => Ok((Segment::Id(id), name.len() + 2)),
        None => {
            let near = hob_units::nearest(name, ids.iter().map(|id| id.name.as_str()));
            let suggestion = near.map_or_else(
                || format!("`{name} = {{ max = 128 }}` under [ids]"),
                |near| format!("<{near}>"),
            );
            Err(error(offset, format!("<{name}> is not declared under [ids]"), suggestion))
        }
    }
}

fn literal(text: &str, offset: usize) -> Result<(Segment, usize), PatternError> {
    match text.char_indices().find(|(_, char)| *char == '>' || char.is_control()) {
        None => Ok((Segment::Literal(text.to_owned()), text.len())),
        Some((at, char)) => {
            let message = format!("{char:?} is not allowed in a pattern");
            Err(error(offset + at, message, "a placeholder is written <name>"))
        }
    }
}

fn error(offset: usize, message: impl Into<String>, suggestion: impl Into<String>) -> PatternError {
    PatternError { offset, message: message.into(), suggestion: suggestion.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::{IdForm, RawChars};

    fn ids() -> Vec<IdRule> {
        let id = |name: &str, separator| IdRule {
            name: name.into(),
            form: IdForm::Text(RawChars { separator, ..RawChars::default() }),
            max: 64,
            not: vec![],
            of: None,
            example: "x".into(),
            note: None,
            allow: vec![],
            position: crate::parse::source::Position { line: 1, column: 1 },
        };
        vec![id("userId", false), id("run", true), id("task", false), id("path", true)]
    }

    #[test]
    fn pattern_is_literals_and_placeholders() {
        let pattern = Pattern::parse("user:<userId>:online", &ids()).unwrap();
        assert_eq!(
            pattern.segments,
            [Segment::Literal("user:".into()), Segment::Id(0), Segment::Literal(":online".into())]
        );
        assert_eq!(pattern.glob(), "user:*:online");
    }

    #[test]
    fn errors_suggest_what_to_write() {
        for (text, suggestion) in [
            ("user:<userid>", "<userId>"),
            ("user:<userId", "<userId>"),
            ("user:<color>", "`color = { max = 128 }` under [ids]"),
            ("", "\"user:<userId>:online\""),
        ] {
            let error = Pattern::parse(text, &ids()).unwrap_err();
            assert_eq!(error.suggestion, suggestion, "{text}");
        }
    }
}
