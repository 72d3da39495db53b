//! Errors in a document, with their position.

/// A position in a text. Lines and columns count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl Position {
    pub const START: Self = Self { line: 1, column: 1 };

    /// The position of a byte offset. An offset after the end of the text gives the position of the end.
    #[must_use]
    pub fn of_byte(text: &str, byte: usize) -> Self {
        let before = &text.as_bytes()[..byte.min(text.len())];
        let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        Self {
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            column: 1 + String::from_utf8_lossy(&before[line_start..]).chars().count(),
        }
    }
}

/// An error in a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}", line = at.line, column = at.column, what = self.what())]
pub struct Mistake {
    pub at: Position,
    /// The path of the field, such as `scenario[0].step[2].request`; empty if it is not known.
    pub field: String,
    pub message: String,
}

impl Mistake {
    /// The field and the message, without the position.
    #[must_use]
    pub fn what(&self) -> String {
        let Self { field, message, .. } = self;
        if field.is_empty() { message.clone() } else { format!("{field}: {message}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters() {
        let text = "a\nöö=b";
        assert_eq!(Position::of_byte(text, 0), Position::START);
        assert_eq!(Position::of_byte(text, text.find('=').unwrap()), Position { line: 2, column: 3 });
        assert_eq!(Position::of_byte(text, 1000), Position { line: 2, column: 5 });
    }
}
