//! The text of a schema file, and the errors in it with their positions.

use std::fmt;
use std::ops::Range;

use serde::Serialize;

/// A byte range in the text of a file.
pub(crate) type Span = Range<usize>;

/// A position in a file; both numbers start at one, columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

/// One error in a schema file, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ParseError {
    pub file: String,
    #[serde(flatten)]
    pub position: Position,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// The families and channels whose patterns are the error, if it is about patterns.
    pub families: Vec<String>,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.position.line, self.position.column, self.message)?;
        if let Some(suggestion) = &self.suggestion {
            write!(f, "\n    write instead: {suggestion}")?;
        }
        Ok(())
    }
}

/// All errors of one file, in the order of the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ParseErrors(pub Vec<ParseError>);

impl fmt::Display for ParseErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ParseErrors {}

/// A named text whose byte offsets can be converted to positions.
#[derive(Debug)]
pub(crate) struct Source<'t> {
    pub(crate) file: String,
    pub(crate) text: &'t str,
}

impl<'t> Source<'t> {
    pub(crate) fn new(file: impl Into<String>, text: &'t str) -> Self {
        Source { file: file.into(), text }
    }

    pub(crate) fn position(&self, offset: usize) -> Position {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &self.text[..offset];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = 1 + before.bytes().filter(|byte| *byte == b'\n').count();
        let column = 1 + before[line_start..].chars().count();
        Position {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
        }
    }

    pub(crate) fn error(
        &self,
        at: usize,
        message: impl Into<String>,
        suggestion: Option<String>,
    ) -> ParseError {
        ParseError {
            file: self.file.clone(),
            position: self.position(at),
            message: message.into(),
            suggestion,
            families: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_counts_lines_and_characters_from_one() {
        let source = Source::new("x.toml", "a\nöß = 1\n");
        assert_eq!(source.position(0), Position { line: 1, column: 1 });
        let equals = source.text.find('=').unwrap();
        assert_eq!(source.position(equals), Position { line: 2, column: 4 });
        assert_eq!(source.position(9_999).line, 3);
    }
}
