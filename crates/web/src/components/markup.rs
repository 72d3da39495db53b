//! Rendered HTML, and the one place that escapes text.

use std::fmt::{self, Display, Write};

use askama::filters::HtmlSafe;

/// Rendered HTML or SVG. Templates do not escape it again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Markup(String);

impl Markup {
    /// Wraps text that is already HTML. The caller must have escaped it.
    #[must_use]
    pub fn trusted(html: impl Into<String>) -> Self {
        Self(html.into())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Display for Markup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HtmlSafe for Markup {}

/// Escapes a value for HTML text and quoted attributes.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<T>(pub T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

impl<T: Display> HtmlSafe for Escaped<T> {}

struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|char| self.write_char(char))
    }

    fn write_char(&mut self, char: char) -> fmt::Result {
        match char {
            '<' => self.0.write_str("&lt;"),
            '>' => self.0.write_str("&gt;"),
            '&' => self.0.write_str("&amp;"),
            '"' => self.0.write_str("&quot;"),
            '\'' => self.0.write_str("&#39;"),
            // Not allowed in XML, even as a reference.
            '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {
                self.0.write_char('\u{fffd}')
            }
            _ => self.0.write_char(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_is_escaped() {
        let shown = Escaped("<b a=\"1\" c='2'>&\u{1}</b>").to_string();
        assert_eq!(shown, "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;\u{fffd}&lt;/b&gt;");
    }
}
