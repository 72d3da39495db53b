//! Removes secrets from the response of a server before it is shown: a server may echo the secret that it was sent.

use std::borrow::Cow;
use std::fmt;

/// Values to hide.
#[derive(Clone, Default)]
pub struct Mask(Vec<String>);

impl Mask {
    /// Hides a value, including where it is escaped in a JSON string.
    pub fn hide(&mut self, value: &str) {
        if value.is_empty() {
            return;
        }
        let in_json = value.replace('\\', "\\\\").replace('"', "\\\"");
        for form in [value.to_owned(), in_json] {
            if !self.0.contains(&form) {
                self.0.push(form);
            }
        }
        // Longest first, because one value may be part of another.
        self.0.sort_unstable_by_key(|value| std::cmp::Reverse(value.len()));
    }

    /// Replaces every hidden value with `…`. Call it before a text is truncated: otherwise the text could end with part
    /// of a value, which would not be found.
    #[must_use]
    pub fn apply<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut shown = Cow::Borrowed(text);
        for value in &self.0 {
            if shown.contains(value.as_str()) {
                shown = Cow::Owned(shown.replace(value.as_str(), "…"));
            }
        }
        shown
    }

    /// The first `max_chars` characters of a response, without the hidden values.
    #[must_use]
    pub fn beginning(&self, bytes: &[u8], max_chars: usize) -> String {
        // If there are values to hide, mask the whole text before truncating it: otherwise part of a value could be
        // left.
        let end = if self.0.is_empty() { bytes.len().min(4 * max_chars) } else { bytes.len() };
        self.apply(&String::from_utf8_lossy(&bytes[..end])).chars().take(max_chars).collect()
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mask(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_values_are_not_shown() {
        let mut mask = Mask::default();
        assert_eq!(mask.apply("s3cret"), "s3cret");
        for value in ["s3cret", "s3cret-longer", "a\"b", ""] {
            mask.hide(value);
        }
        assert_eq!(mask.apply(r#"x s3cret-longer s3cret a"b a\"b y"#), "x … … … … y");
        assert!(!format!("{mask:?}").contains("s3cret"));
        assert_eq!(mask.beginning(b"1234567 s3cret 8", 10), "1234567 … ");
        assert_eq!(Mask::default().beginning("äöü\u{fffd}x".as_bytes(), 3), "äöü");
    }
}
