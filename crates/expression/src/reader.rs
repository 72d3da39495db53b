//! Reads an expression from left to right.

/// An error in an expression, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {message}")]
pub struct Mistake {
    /// Position in characters, from 1.
    pub column: usize,
    pub message: String,
}

impl Mistake {
    /// The same mistake with its position in a longer text, in which the expression follows `before`.
    #[must_use]
    pub fn after(self, before: &str) -> Self {
        Self { column: before.chars().count() + self.column, ..self }
    }
}

/// An expression and the current position.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    text: &'a str,
    /// Byte offset, at a character boundary.
    at: usize,
}

impl<'a> Reader<'a> {
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    #[must_use]
    pub fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// The text between `begin` and the current position.
    #[must_use]
    pub fn since(&self, begin: Position) -> &'a str {
        &self.text[begin.0..self.at]
    }

    /// The current position, for [`Reader::go_back`].
    #[must_use]
    pub fn place(&self) -> Position {
        Position(self.at)
    }

    pub fn go_back(&mut self, place: Position) {
        self.at = place.0;
    }

    pub fn next_char(&mut self) -> Option<char> {
        let next = self.rest().chars().next()?;
        self.at += next.len_utf8();
        Some(next)
    }

    pub fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    /// Returns the position after the spaces.
    pub fn skip_space(&mut self) -> Position {
        self.take_while(char::is_whitespace);
        self.place()
    }

    pub fn word(&mut self) -> &'a str {
        self.take_while(|c| c.is_ascii_alphabetic())
    }

    /// Reads `keyword` if it comes next, as a whole word.
    pub fn keyword(&mut self, keyword: &str) -> bool {
        let begin = self.place();
        self.skip_space();
        let there = self.word() == keyword;
        if !there {
            self.go_back(begin);
        }
        there
    }

    /// Reads `symbol` if it comes next. Always skips the spaces before it, so that an error has the position of the
    /// next character.
    pub fn symbol(&mut self, symbol: &str) -> bool {
        self.skip_space();
        self.directly(symbol)
    }

    /// Reads `symbol` if it comes next, without spaces before it.
    pub fn directly(&mut self, symbol: &str) -> bool {
        let there = self.rest().starts_with(symbol);
        if there {
            self.at += symbol.len();
        }
        there
    }

    /// Fails unless the whole expression was read.
    pub fn end(&mut self) -> Result<(), Mistake> {
        self.skip_space();
        if self.rest().is_empty() { Ok(()) } else { Err(self.expected("the end")) }
    }

    /// The error for a missing `what` at the current position.
    pub fn expected(&mut self, what: &str) -> Mistake {
        self.skip_space();
        let found: String = self.rest().chars().take_while(|c| !c.is_whitespace()).take(20).collect();
        self.mistake(match found.as_str() {
            "" => format!("expected {what}, but the expression ends"),
            found => format!("expected {what}, found {found:?}"),
        })
    }

    /// An error at the current position.
    pub fn mistake(&self, message: impl Into<String>) -> Mistake {
        Mistake { column: self.text[..self.at].chars().count() + 1, message: message.into() }
    }
}

/// A position in an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(usize);
