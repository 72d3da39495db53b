//! A service's card on the Overview.

/// What a service shows of itself on the Overview.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    pub title: &'static str,
    /// Where its pages are.
    pub href: &'static str,
    pub mood: Mood,
    /// The vital numbers, few.
    pub figures: Vec<Figure>,
    /// The course of the first figure, oldest first; `None` where nothing was measured.
    pub spark: Vec<Option<f64>>,
    /// What is wrong now, worst first.
    pub troubles: Vec<Trouble>,
}

/// How a service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mood {
    /// Nothing to do, and nothing wrong.
    Idle,
    Well,
    Troubled,
    Down,
}

/// A number with its unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub label: &'static str,
    pub value: f64,
    /// `ms`, `/s`, `%`; empty for a count.
    pub unit: &'static str,
}

/// Something that is wrong, and where to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub text: String,
    pub href: String,
}
