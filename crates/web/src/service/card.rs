//! A service's card on the Overview.

use crate::chart::Spark;
use crate::look::{Markup, Quantity, Tone, Unit};

/// What a service shows of itself on the Overview.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    pub title: &'static str,
    /// Where its pages are.
    pub href: &'static str,
    /// How the service is.
    pub tone: Tone,
    /// That in a word or two: `3 of 40 down`.
    pub word: String,
    /// The vital numbers, few.
    pub figures: Vec<Figure>,
    /// The course of the first figure, oldest first; `None` where nothing was measured.
    pub spark: Vec<Option<f64>>,
    /// What is wrong now, worst first.
    pub troubles: Vec<Trouble>,
}

/// A number with its name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    pub label: &'static str,
    pub value: Quantity,
}

/// Something that is wrong, and where to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub tone: Tone,
    pub text: String,
    pub href: String,
    /// When it began, in Unix milliseconds, where that is known.
    pub since_ms: Option<u64>,
}

impl Card {
    /// The course of the first figure as a picture.
    #[must_use]
    pub fn spark(&self) -> Markup {
        let (label, unit) =
            self.figures.first().map_or((self.title, Unit::Count), |first| (first.label, first.value.unit()));
        Spark::new(label, unit, self.spark.iter().copied()).render()
    }
}
