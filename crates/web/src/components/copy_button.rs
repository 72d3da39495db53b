//! A button that copies a text.

use std::fmt::{self, Display};

use askama::filters::HtmlSafe;

use super::markup::Escaped;

/// Copies a text to the clipboard. Only visible with scripts.
#[derive(Clone, Copy, Debug)]
pub struct CopyButton<'a> {
    pub text: &'a str,
    /// What is copied, for screen readers.
    pub what: &'a str,
}

impl<'a> CopyButton<'a> {
    #[must_use]
    pub fn of(text: &'a str, what: &'a str) -> Self {
        Self { text, what }
    }
}

impl Display for CopyButton<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, what) = (Escaped(self.text), Escaped(self.what));
        write!(
            f,
            r#"<button type="button" class="small copy" data-copy="{text}" aria-label="Copy: {what}">Copy</button>"#
        )
    }
}

impl HtmlSafe for CopyButton<'_> {}
