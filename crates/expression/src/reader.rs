//! Reads an expression from left to right.

/// What is wrong with an expression, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {message}")]
pub struct Mistake {
    /// The character at which it goes wrong, counted from 1.
    pub column: usize,
    pub message: String,
}

/// An expression, and how much of it was read.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    text: &'a str,
    /// In bytes, at the border of a character.
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

    /// What was read since the reader was at `begin`.
    #[must_use]
    pub fn since(&self, begin: Place) -> &'a str {
        &self.text[begin.0..self.at]
    }

    /// Where the reader is, to come back to.
    #[must_use]
    pub fn place(&self) -> Place {
        Place(self.at)
    }

    pub fn go_back(&mut self, place: Place) {
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

    /// Answers with where it then is.
    pub fn skip_space(&mut self) -> Place {
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

    /// Reads `symbol` if it comes next. The space before it is gone either way, so that a mistake is told at
    /// what stands there.
    pub fn symbol(&mut self, symbol: &str) -> bool {
        self.skip_space();
        self.directly(symbol)
    }

    /// Reads `symbol` if it comes next, without any space before it.
    pub fn directly(&mut self, symbol: &str) -> bool {
        let there = self.rest().starts_with(symbol);
        if there {
            self.at += symbol.len();
        }
        there
    }

    /// Makes sure that nothing is left.
    pub fn end(&mut self) -> Result<(), Mistake> {
        self.skip_space();
        if self.rest().is_empty() { Ok(()) } else { Err(self.expected("the end")) }
    }

    /// The mistake that something else stands here.
    pub fn expected(&mut self, what: &str) -> Mistake {
        self.skip_space();
        let found: String = self.rest().chars().take_while(|c| !c.is_whitespace()).take(20).collect();
        self.mistake(match found.as_str() {
            "" => format!("expected {what}, but the expression ends"),
            found => format!("expected {what}, found {found:?}"),
        })
    }

    /// A mistake at this place.
    pub fn mistake(&self, message: impl Into<String>) -> Mistake {
        Mistake { column: self.text[..self.at].chars().count() + 1, message: message.into() }
    }
}

/// A place in an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(usize);
