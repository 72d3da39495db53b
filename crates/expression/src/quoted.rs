//! Quoted strings.

use std::fmt::{self, Write as _};

use crate::{Mistake, Reader};

/// Displays a string in double quotes, with the escapes of [`Reader::quoted`].
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

impl Reader<'_> {
    /// Reads a string in double quotes.
    pub fn quoted(&mut self) -> Result<String, Mistake> {
        if !self.symbol("\"") {
            return Err(self.expected("a text in double quotes"));
        }
        self.quoted_until('"')
    }

    /// Reads the rest of a string after its opening quote.
    pub(crate) fn quoted_until(&mut self, quote: char) -> Result<String, Mistake> {
        let mut text = String::new();
        while let Some(c) = self.next_char() {
            match c {
                c if c == quote => return Ok(text),
                '\\' => text.push(self.escaped(quote)?),
                c => text.push(c),
            }
        }
        Err(self.expected(&format!("the closing {quote}")))
    }

    fn escaped(&mut self, quote: char) -> Result<char, Mistake> {
        let begin = self.place();
        match self.next_char() {
            Some(c) if c == quote || c == '\\' => Ok(c),
            Some('n') => Ok('\n'),
            Some('r') => Ok('\r'),
            Some('t') => Ok('\t'),
            _ => {
                self.go_back(begin);
                Err(self.expected(&format!(r"one of {quote} \ n r t after the backslash")))
            }
        }
    }
}
