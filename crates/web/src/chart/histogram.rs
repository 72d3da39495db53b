//! Histograms.

use std::fmt::Write;
use std::ops::Range;

use super::axis::{Base, Tick, ValueAxis, sane};
use super::canvas::{Num, Path, WIDTH};
use super::frame::{Column, Frame, HEIGHT, Left, Note, draw_columns};
use crate::components::{Markup, Quantity, Unit};

const MAX_BINS: usize = 120;
const MAX_MARKS: usize = 8;
const MAX_LABELS: usize = 7;

/// A chart of the distribution of values. All bins have the same width in the picture, so that bins that grow with
/// their values, such as those of latencies, are readable.
#[derive(Clone, Debug)]
#[must_use]
pub struct Histogram {
    unit: Unit,
    title: String,
    height: f64,
    bins: Vec<Bin>,
    marks: Vec<(String, f64)>,
}

#[derive(Clone, Debug)]
struct Bin {
    from: f64,
    to: f64,
    count: u64,
}

impl Histogram {
    /// A chart of values of this unit.
    pub fn new(unit: Unit) -> Self {
        Self { unit, title: String::new(), height: HEIGHT, bins: Vec::new(), marks: Vec::new() }
    }

    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    /// The height of the plot in pixels.
    pub fn height(mut self, pixels: u32) -> Self {
        self.height = f64::from(pixels.clamp(40, 600));
        self
    }

    /// Adds a bin for larger values than those of the earlier bins.
    pub fn bin(mut self, values: Range<f64>, count: u64) -> Self {
        if let (Some(from), Some(to)) = (sane(values.start), sane(values.end))
            && self.bins.len() < MAX_BINS
        {
            self.bins.push(Bin { from, to, count });
        }
        self
    }

    /// Marks a value, such as a percentile.
    pub fn mark(mut self, name: impl Into<String>, value: f64) -> Self {
        if let Some(value) = sane(value)
            && self.marks.len() < MAX_MARKS
        {
            self.marks.push((name.into(), value));
        }
        self
    }

    #[must_use]
    pub fn render(&self) -> Markup {
        let scale = ValueAxis::over(self.bins.iter().map(|bin| bin.count as f64), Unit::Count, Base::Zero);
        let total: u64 = self.bins.iter().fold(0, |sum, bin| sum.saturating_add(bin.count));
        let mut path = Path::default();
        for (index, bin) in self.bins.iter().enumerate().filter(|(_, bin)| bin.count > 0) {
            let top = scale.y(bin.count as f64, self.height);
            let (from, width) = (self.edge(index), self.edge(1));
            path.rect(from + width * 0.06, top, width * 0.88, self.height - top);
        }
        let mut marks = String::new();
        if !path.is_empty() {
            let _ = write!(marks, r#"<path class="s0 fill" d="{path}"/>"#);
        }
        let notes = self.draw_marks(&mut marks);
        let columns = self.columns(total);
        draw_columns(&mut marks, &columns, self.height);
        let frame = Frame {
            title: self.title.clone(),
            summary: self.summary(total),
            height: self.height,
            left: Left::Scale(scale.ticks),
            below: self.labels(),
            notes,
            legend: Vec::new(),
            columns: ("Range", columns),
            nothing: (total == 0).then_some("No values yet"),
        };
        frame.render(&marks)
    }

    /// Where a bin begins.
    fn edge(&self, index: usize) -> f64 {
        WIDTH * index as f64 / self.bins.len().max(1) as f64
    }

    /// The position of a value, if it is in a bin.
    fn x(&self, value: f64) -> Option<f64> {
        let index = self.bins.iter().position(|bin| (bin.from..=bin.to).contains(&value))?;
        let bin = &self.bins[index];
        let inside = if bin.to > bin.from { (value - bin.from) / (bin.to - bin.from) } else { 0.5 };
        Some(self.edge(index) + inside * self.edge(1))
    }

    /// The marks as SVG, and their names, one below the other, so that names of close values do not overlap.
    fn draw_marks(&self, svg: &mut String) -> Vec<Note> {
        let mut notes = Vec::new();
        for (name, value) in &self.marks {
            let Some(x) = self.x(*value) else { continue };
            let _ = write!(svg, r#"<path class="limit" d="M{} 0V{}"/>"#, Num(x), Num(self.height));
            let text = format!("{name} {}", self.unit.of(*value));
            notes.push(Note { x: x / WIDTH, y: 10.0 + 14.0 * notes.len() as f64, text });
        }
        notes
    }

    /// Labels at the edges of bins.
    fn labels(&self) -> Vec<Tick> {
        let every = (self.bins.len() + 1).div_ceil(MAX_LABELS).max(1);
        let edges = self.bins.iter().map(|bin| bin.from).chain(self.bins.last().map(|bin| bin.to));
        let tick = |(index, value): (usize, f64)| Tick {
            at: self.edge(index) / WIDTH,
            label: self.unit.of(value).to_string(),
        };
        edges.enumerate().step_by(every).map(tick).collect()
    }

    fn columns(&self, total: u64) -> Vec<Column> {
        let column = |(index, bin): (usize, &Bin)| Column {
            from: self.edge(index),
            to: self.edge(index + 1),
            label: format!("{} to {}", self.unit.of(bin.from), self.unit.of(bin.to)),
            values: vec![(
                String::new(),
                format!("{} ({})", Quantity::count(bin.count), Quantity::share(bin.count, total)),
            )],
        };
        self.bins.iter().enumerate().map(column).collect()
    }

    fn summary(&self, total: u64) -> String {
        let mut text = format!("{}: {} values.", self.title, Quantity::count(total));
        for (name, value) in &self.marks {
            let _ = write!(text, " {name} {}.", self.unit.of(*value));
        }
        text
    }
}
