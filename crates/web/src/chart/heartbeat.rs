//! A row of checks. The height of each bar shows the latency; its shape and colour show the result.

use std::fmt::Write;

use super::axis::{moment, sane};
use super::canvas::Num;
use crate::components::{Escaped, Markup, Tone, Unit};

/// Maximum number of checks in a row. The latest ones are shown.
const MAX_BEATS: usize = 100;
const HEIGHT: f64 = 32.0;
/// The distance between two checks, and the width of each.
const STEP: f64 = 8.0;
const WIDTH: f64 = 5.0;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulse {
    Up,
    /// Slow, or with a failed assertion that does not count as down.
    Slow,
    Down,
    /// Not checked.
    Silent,
}

/// One check.
#[derive(Clone, Debug, PartialEq)]
pub struct Beat {
    pub at_ms: u64,
    pub pulse: Pulse,
    pub latency_ms: Option<f64>,
    /// A message, such as an error.
    pub note: String,
}

/// A row of checks, the latest at the right.
#[derive(Clone, Debug)]
#[must_use]
pub struct Heartbeat {
    label: String,
    beats: Vec<Beat>,
}

impl Heartbeat {
    /// A row of these checks, in order of time. The label names what was checked.
    pub fn new(label: impl Into<String>, beats: impl IntoIterator<Item = Beat>) -> Self {
        let mut beats: Vec<Beat> = beats.into_iter().collect();
        beats.drain(..beats.len().saturating_sub(MAX_BEATS));
        Self { label: label.into(), beats }
    }

    #[must_use]
    pub fn render(&self) -> Markup {
        let latencies = self.beats.iter().filter_map(|beat| beat.latency_ms.and_then(sane));
        let most = latencies.fold(0.0, f64::max);
        let width = Num(STEP * self.beats.len().max(1) as f64);
        let mut svg = format!(
            r#"<svg class="heartbeat" width="{width}" height="{HEIGHT}" viewBox="0 0 {width} {HEIGHT}" role="img" aria-label="{}">"#,
            Escaped(self.summary())
        );
        for (index, beat) in self.beats.iter().enumerate() {
            let x = STEP * index as f64 + (STEP - WIDTH) / 2.0;
            let class = beat.pulse.tone().class();
            let shape = beat.pulse.shape(x, beat.height(most));
            let _ = write!(
                svg,
                r#"<g class="beat {class}"><rect class="hit" x="{}" y="0" width="{STEP}" height="{HEIGHT}"/><path d="{shape}"/><title>{}</title></g>"#,
                Num(STEP * index as f64),
                Escaped(beat.words())
            );
        }
        svg.push_str("</svg>");
        Markup::trusted(svg)
    }

    fn summary(&self) -> String {
        let of = |pulse: Pulse| self.beats.iter().filter(|beat| beat.pulse == pulse).count();
        let latest = self.beats.last().map_or("nothing yet", |beat| beat.pulse.word());
        format!(
            "{}: {latest}. Of the latest {} checks {} up, {} slow, {} down, {} not made.",
            self.label,
            self.beats.len(),
            of(Pulse::Up),
            of(Pulse::Slow),
            of(Pulse::Down),
            of(Pulse::Silent)
        )
    }
}

impl Beat {
    /// Taller is slower; the slowest fills the row.
    fn height(&self, most: f64) -> f64 {
        const MIN_HEIGHT: f64 = 6.0;
        let part = self.latency_ms.and_then(sane).map_or(0.0, |latency| latency.max(0.0) / most.max(1e-6));
        MIN_HEIGHT + (HEIGHT - MIN_HEIGHT) * part.clamp(0.0, 1.0)
    }

    fn words(&self) -> String {
        let mut words = format!("{} UTC\n{}", moment(self.at_ms), self.pulse.word());
        if let Some(latency) = self.latency_ms {
            let _ = write!(words, " in {}", Unit::Millis.of(latency));
        }
        if !self.note.is_empty() {
            let note: String = self.note.chars().take(120).collect();
            let _ = write!(words, "\n{note}");
        }
        words
    }
}

impl Pulse {
    /// What it is called.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Slow => "slow",
            Self::Down => "down",
            Self::Silent => "no check",
        }
    }

    #[must_use]
    pub fn tone(self) -> Tone {
        match self {
            Self::Up => Tone::Good,
            Self::Slow => Tone::Warn,
            Self::Down => Tone::Bad,
            Self::Silent => Tone::Idle,
        }
    }

    /// The shape of a result: up is a bar, slow is a bar with a pointed top, down is a full-height bar with a break in
    /// the middle, and no result is a dot.
    fn shape(self, x: f64, height: f64) -> String {
        let (top, middle, right) = (HEIGHT - height, x + WIDTH / 2.0, x + WIDTH);
        match self {
            Self::Up => format!("M{} {}h{WIDTH}V{HEIGHT}h-{WIDTH}z", Num(x), Num(top)),
            Self::Slow => {
                let shoulder = (top + 5.0).min(HEIGHT - 1.0);
                let (x, right, shoulder) = (Num(x), Num(right), Num(shoulder));
                format!("M{x} {shoulder}L{} {}L{right} {shoulder}V{HEIGHT}H{x}z", Num(middle), Num(top))
            }
            Self::Down => {
                let (x, right) = (Num(x), Num(right));
                format!("M{x} 0H{right}V12L{x} 17zM{right} 15V{HEIGHT}H{x}V20z")
            }
            Self::Silent => format!("M{} {}h2v2h-2z", Num(middle - 1.0), Num(HEIGHT - 4.0)),
        }
    }
}
