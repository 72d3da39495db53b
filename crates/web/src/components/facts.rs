//! Lists of names and values.

use std::fmt::{self, Display, Write};

use askama::filters::HtmlSafe;

use super::copy_button::CopyButton;
use super::markup::Escaped;

/// A list of names and values.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Facts {
    html: String,
}

impl Facts {
    pub fn new() -> Self {
        Self::default()
    }

    /// A value as plain text.
    pub fn text(self, name: &str, value: impl Display) -> Self {
        self.html(name, Escaped(value))
    }

    /// A value in a monospaced font, with a button that copies it: a key, an address, a command.
    pub fn code(self, name: &str, value: impl Display) -> Self {
        let value = value.to_string();
        self.html(
            name,
            format_args!("<code>{}</code> {}", Escaped(&value), CopyButton { text: &value, what: name }),
        )
    }

    /// A value that renders as HTML, such as a [`Badge`](super::Badge) or a [`RelativeTime`](super::RelativeTime).
    pub fn markup(self, name: &str, value: impl HtmlSafe) -> Self {
        self.html(name, value)
    }

    fn html(mut self, name: &str, value: impl Display) -> Self {
        // Writing into a string cannot fail.
        let _ = write!(self.html, "<div><dt>{}</dt><dd>{value}</dd></div>", Escaped(name));
        self
    }
}

impl Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, r#"<dl class="facts">{}</dl>"#, self.html)
    }
}

impl HtmlSafe for Facts {}

#[cfg(test)]
mod tests {
    use super::super::Tone;
    use super::*;

    #[test]
    fn text_is_escaped_and_markup_is_not() {
        let html = Facts::new().text("a<b", "c>d").markup("state", Tone::Good.badge("up")).to_string();
        assert!(html.contains("<dt>a&lt;b</dt><dd>c&gt;d</dd>"), "{html}");
        assert!(html.contains(r#"<dd><span class="badge good">"#), "{html}");
    }
}
