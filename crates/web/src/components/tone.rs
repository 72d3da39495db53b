//! States, which pages show with a shape, a word and a colour, never with a colour alone.

use std::fmt::{self, Display};

use askama::filters::HtmlSafe;

use super::markup::Escaped;

/// The tone of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tone {
    /// Off, paused, unknown.
    #[default]
    Idle,
    Good,
    /// In progress.
    Busy,
    Warn,
    Bad,
}

impl Tone {
    /// Its class in the stylesheet.
    #[must_use]
    pub fn class(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Good => "good",
            Self::Busy => "busy",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }

    /// The path of its shape in a box of 12 by 12.
    fn shape(self) -> &'static str {
        match self {
            Self::Idle => {
                "M6 2.2a3.8 3.8 0 1 0 0 7.6 3.8 3.8 0 0 0 0-7.6zm0 1.5a2.3 2.3 0 1 1 0 4.6 2.3 2.3 0 0 1 0-4.6z"
            }
            Self::Good => "M6 1.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9z",
            Self::Busy => "M6 1a5 5 0 1 0 0 10A5 5 0 0 0 6 1zm0 1.6v6.8a3.4 3.4 0 0 1 0-6.8z",
            Self::Warn => "M6 1 11.4 10.6H.6z",
            Self::Bad => "M3.6 1h4.8L11 3.6v4.8L8.4 11H3.6L1 8.4V3.6z",
        }
    }

    /// The shape alone, next to a text.
    #[must_use]
    pub fn icon(self) -> Icon {
        Icon(self)
    }

    /// The shape and a word, such as `up` or `3 failing`.
    pub fn badge(self, word: impl Into<String>) -> Badge {
        Badge { tone: self, word: word.into() }
    }
}

/// A tone's shape.
#[derive(Clone, Copy, Debug)]
pub struct Icon(Tone);

impl Display for Icon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            r#"<svg class="icon {}" width="12" height="12" viewBox="0 0 12 12" aria-hidden="true"><path d="{}"/></svg>"#,
            self.0.class(),
            self.0.shape()
        )
    }
}

impl HtmlSafe for Icon {}

/// A tone's shape with a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Badge {
    pub tone: Tone,
    pub word: String,
}

impl Display for Badge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (class, icon) = (self.tone.class(), self.tone.icon());
        write!(f, r#"<span class="badge {class}">{icon}{}</span>"#, Escaped(&self.word))
    }
}

impl HtmlSafe for Badge {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tone_has_a_shape_of_its_own() {
        let tones = [Tone::Idle, Tone::Good, Tone::Busy, Tone::Warn, Tone::Bad];
        for (index, tone) in tones.iter().enumerate() {
            assert!(tones[..index].iter().all(|other| other.shape() != tone.shape()), "{tone:?}");
        }
    }

    #[test]
    fn badge_escapes_its_text() {
        assert!(Tone::Bad.badge("<down>").to_string().ends_with("&lt;down&gt;</span>"));
    }
}
