//! Heat maps: counts by time and value.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use super::axis::{Tick, TimeAxis, moment};
use super::canvas::{Path, WIDTH};
use super::frame::{Column, Frame, Key, Left, draw_columns, summary};
use crate::components::{Markup, Quantity, Unit};

const MAX_STEPS: u64 = 120;
const MAX_ROWS: usize = 32;
/// Shades from `heat1` to `heat5`.
const SHADES: usize = 5;
/// The height of a row in pixels.
const ROW: f64 = 12.0;

/// A chart of counts by time and row, such as latencies in buckets.
#[derive(Clone, Debug)]
#[must_use]
pub struct HeatMap {
    axis: TimeAxis,
    step_ms: u64,
    title: String,
    rows: Vec<String>,
    /// Counts by step and row.
    cells: BTreeMap<(u64, usize), u64>,
}

impl HeatMap {
    /// A chart of this time range, with a column per step and these rows, the lowest first.
    pub fn new<R: Into<String>>(
        range_ms: Range<u64>,
        step_ms: u64,
        rows: impl IntoIterator<Item = R>,
    ) -> Self {
        let axis = TimeAxis::new(&range_ms);
        let step_ms = step_ms.max(1);
        let joined = axis.span_ms().div_ceil(step_ms).div_ceil(MAX_STEPS).max(1);
        Self {
            axis,
            step_ms: step_ms.saturating_mul(joined),
            title: String::new(),
            rows: rows.into_iter().map(Into::into).take(MAX_ROWS).collect(),
            cells: BTreeMap::new(),
        }
    }

    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    /// Adds to a cell. Values outside of the chart are ignored.
    pub fn count(mut self, at_ms: u64, row: usize, count: u64) -> Self {
        if self.axis.holds(at_ms) && at_ms < self.axis.end_ms() && row < self.rows.len() && count > 0 {
            let cell = self.cells.entry((at_ms / self.step_ms, row)).or_default();
            *cell = cell.saturating_add(count);
        }
        self
    }

    #[must_use]
    pub fn render(&self) -> Markup {
        let most = self.cells.values().copied().max().unwrap_or(0);
        let height = ROW * self.rows.len().max(1) as f64;
        let mut shades: [Path; SHADES] = Default::default();
        for ((step, row), count) in &self.cells {
            let (from, to) = self.edges(*step);
            let y = height - ROW * (*row as f64 + 1.0);
            shades[shade(*count, most)].rect(from, y + 0.5, to - from - 0.8, ROW - 1.0);
        }
        let mut marks = String::new();
        for (shade, path) in shades.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
            let _ = write!(marks, r#"<path class="heat{}" d="{path}"/>"#, shade + 1);
        }
        let columns = self.columns();
        draw_columns(&mut marks, &columns, height);
        let total: u64 = self.cells.values().fold(0, |sum, count| sum.saturating_add(*count));
        let counted =
            format!(" {} in all, at most {} in a cell.", Quantity::count(total), Quantity::count(most));
        let frame = Frame {
            title: self.title.clone(),
            summary: summary(&self.title, &[], &self.axis, Unit::Count) + &counted,
            height,
            left: Left::Rows(self.labels()),
            below: self.axis.ticks(),
            notes: Vec::new(),
            legend: legend(most),
            columns: ("Time", columns),
            nothing: self.cells.is_empty().then_some("No data in this time"),
        };
        frame.render(&marks)
    }

    fn edges(&self, step: u64) -> (f64, f64) {
        let start_ms = step.saturating_mul(self.step_ms);
        (self.axis.x(start_ms), self.axis.x(start_ms.saturating_add(self.step_ms)).min(WIDTH))
    }

    /// Labels in the middle of their rows. Only as many labels as fit.
    fn labels(&self) -> Vec<Tick> {
        let rows = self.rows.len().max(1);
        let every = if rows > 12 { rows.div_ceil(8) } else { rows.div_ceil(6).min(2) };
        let tick = |(row, label): (usize, &String)| Tick {
            at: (row as f64 + 0.5) / rows as f64,
            label: label.chars().take(10).collect(),
        };
        self.rows.iter().enumerate().step_by(every).map(tick).collect()
    }

    /// The tooltip of each column lists its rows, the highest first.
    fn columns(&self) -> Vec<Column> {
        const MAX_LINES: usize = 8;
        let mut columns = Vec::new();
        let cells: Vec<((u64, usize), u64)> =
            self.cells.iter().map(|(place, count)| (*place, *count)).collect();
        for step in cells.chunk_by(|a, b| a.0.0 == b.0.0) {
            let index = step[0].0.0;
            let (from, to) = self.edges(index);
            let shown = step.iter().rev().take(MAX_LINES);
            let shown =
                shown.map(|((_, row), count)| (self.rows[*row].clone(), Quantity::count(*count).to_string()));
            let mut values: Vec<(String, String)> = shown.collect();
            if step.len() > MAX_LINES {
                values.push(("…".to_owned(), String::new()));
            }
            let label = format!("{} UTC", moment(index.saturating_mul(self.step_ms)));
            columns.push(Column { from, to, label, values });
        }
        columns
    }
}

/// The square root keeps rare values visible next to common ones.
fn shade(count: u64, most: u64) -> usize {
    let part = (count as f64 / most.max(1) as f64).sqrt();
    ((part * SHADES as f64).ceil() as usize).clamp(1, SHADES) - 1
}

fn legend(most: u64) -> Vec<Key> {
    if most == 0 {
        return Vec::new();
    }
    let key = |shade: usize| {
        let part = (shade as f64 / SHADES as f64).powi(2);
        let up_to = (part * most as f64).max(1.0);
        Key {
            name: format!("≤ {}", Unit::Count.of(up_to.floor())),
            class: format!("swatch heat{shade}"),
            value: None,
        }
    };
    [1, 3, SHADES].map(key).into()
}
