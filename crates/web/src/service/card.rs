//! The card of a service on the Overview page.

use crate::chart::Spark;
use crate::components::{Markup, Quantity, Tone, Unit};

/// The card of a service on the Overview page.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    pub title: &'static str,
    /// The path of its pages.
    pub href: &'static str,
    /// The state of the service.
    pub tone: Tone,
    /// The state in a few words: `3 of 40 down`.
    pub status: String,
    /// The most important numbers.
    pub figures: Vec<Figure>,
    /// The history of the first figure, oldest first; `None` for gaps.
    pub spark: Vec<Option<f64>>,
    /// Current problems, worst first.
    pub problems: Vec<CardProblem>,
}

/// A number with a label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    pub label: &'static str,
    pub value: Quantity,
}

/// A problem, with a link to its page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardProblem {
    pub tone: Tone,
    pub text: String,
    pub href: String,
    /// When it started, in Unix milliseconds, if known.
    pub since_ms: Option<u64>,
}

impl Card {
    /// The history of the first figure as a sparkline.
    #[must_use]
    pub fn spark(&self) -> Markup {
        let (label, unit) =
            self.figures.first().map_or((self.title, Unit::Count), |first| (first.label, first.value.unit()));
        Spark::new(label, unit, self.spark.iter().copied()).render()
    }
}
