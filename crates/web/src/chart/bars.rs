//! Stacked bars over time.

use std::fmt::Write;
use std::ops::Range;

use super::axis::{Base, TimeAxis, ValueAxis, moment, sane};
use super::canvas::{Path, WIDTH};
use super::frame::{self, Column, Frame, HEIGHT, Key, Left};
use super::series::{Hue, MAX_SERIES, Point, Series};
use crate::components::{Markup, Tone, Unit};

/// Maximum number of bars in a chart. If there would be more, steps are combined.
const MAX_BARS: u64 = 180;

/// A chart of amounts per step of time, one series on top of the other.
#[derive(Clone, Debug)]
#[must_use]
pub struct Bars {
    axis: TimeAxis,
    step_ms: u64,
    title: String,
    unit: Unit,
    height: f64,
    series: Vec<Series>,
}

impl Bars {
    /// A chart of this time range, with a bar for every step. All amounts within a step are added.
    pub fn new(range_ms: Range<u64>, step_ms: u64) -> Self {
        let axis = TimeAxis::new(&range_ms);
        let step_ms = step_ms.max(1);
        let joined = axis.span_ms().div_ceil(step_ms).div_ceil(MAX_BARS).max(1);
        let step_ms = step_ms.saturating_mul(joined);
        Self { axis, step_ms, title: String::new(), unit: Unit::Count, height: HEIGHT, series: Vec::new() }
    }

    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    pub fn unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// The height of the plot in pixels.
    pub fn height(mut self, pixels: u32) -> Self {
        self.height = f64::from(pixels.clamp(40, 600));
        self
    }

    /// A part of each bar, with its own colour, on top of the earlier series. The time of a point is the start of its
    /// step.
    pub fn series<P: Into<Point>>(self, name: &str, points: impl IntoIterator<Item = P>) -> Self {
        let hue = frame::hue_of(name, &self.series);
        self.add(name, hue, points)
    }

    /// A series with the colour of a tone.
    pub fn toned<P: Into<Point>>(self, name: &str, tone: Tone, points: impl IntoIterator<Item = P>) -> Self {
        self.add(name, Hue::Tone(tone), points)
    }

    fn add<P: Into<Point>>(mut self, name: &str, hue: Hue, points: impl IntoIterator<Item = P>) -> Self {
        if self.series.len() < MAX_SERIES {
            self.series.push(Series::new(name, hue, points));
        }
        self
    }

    #[must_use]
    pub fn render(&self) -> Markup {
        let steps = self.steps();
        let scale = ValueAxis::over(
            steps.iter().map(|step| step.amounts.iter().flatten().sum()),
            self.unit,
            Base::Zero,
        );
        let mut marks = String::new();
        for (index, series) in self.series.iter().enumerate() {
            let path = self.part(&steps, index, &scale);
            if !path.is_empty() {
                let _ = write!(marks, r#"<path class="{} fill" d="{path}"/>"#, series.hue.class());
            }
        }
        let columns: Vec<Column> = steps.iter().map(|step| self.column(step)).collect();
        frame::draw_columns(&mut marks, &columns, self.height);
        let is_empty = steps.iter().all(|step| step.amounts.iter().all(Option::is_none));
        let frame = Frame {
            title: self.title.clone(),
            summary: self.summary(&steps),
            height: self.height,
            left: Left::Scale(scale.ticks),
            below: self.axis.ticks(),
            notes: Vec::new(),
            legend: self.legend(&steps),
            columns: ("Time", columns),
            nothing: is_empty.then_some("No data in this time"),
        };
        frame.render(&marks)
    }

    /// The amounts of every step, in the order of the series. Steps without data have no amounts.
    fn steps(&self) -> Vec<Step> {
        let first = self.axis.start_ms() / self.step_ms;
        let count = (self.axis.end_ms() - 1) / self.step_ms - first + 1;
        let empty = |index: u64| Step {
            start_ms: (first + index).saturating_mul(self.step_ms),
            amounts: vec![None; self.series.len()],
        };
        let mut steps: Vec<Step> = (0..count).map(empty).collect();
        for (index, series) in self.series.iter().enumerate() {
            for point in series.points_in(&self.axis) {
                let place = usize::try_from(point.at_ms / self.step_ms - first).ok();
                let Some(step) = place.and_then(|place| steps.get_mut(place)) else { continue };
                if let Some(amount) = point.value {
                    let sum = step.amounts[index].unwrap_or(0.0) + amount.max(0.0);
                    step.amounts[index] = sane(sum);
                }
            }
        }
        steps
    }

    /// The part of all bars that belongs to one series.
    fn part(&self, steps: &[Step], index: usize, scale: &ValueAxis) -> Path {
        let mut path = Path::default();
        for step in steps {
            let Some(amount) = step.amounts[index].filter(|amount| *amount > 0.0) else { continue };
            let below: f64 = step.amounts[..index].iter().flatten().sum();
            let (top, bottom) = (scale.y(below + amount, self.height), scale.y(below, self.height));
            let (from, to) = self.edges(step);
            let air = (to - from) * 0.12;
            path.rect(from + air, top, to - from - 2.0 * air, bottom - top);
        }
        path
    }

    fn edges(&self, step: &Step) -> (f64, f64) {
        (self.axis.x(step.start_ms), self.axis.x(step.start_ms.saturating_add(self.step_ms)).min(WIDTH))
    }

    fn column(&self, step: &Step) -> Column {
        let (from, to) = self.edges(step);
        let values = self.series.iter().zip(&step.amounts).rev();
        let values = values.map(|(series, amount)| {
            (series.name.clone(), self.unit.of(amount.unwrap_or(f64::NAN)).to_string())
        });
        Column { from, to, label: format!("{} UTC", moment(step.start_ms)), values: values.collect() }
    }

    fn totals(&self, steps: &[Step]) -> Vec<f64> {
        let total = |index: usize| steps.iter().filter_map(|step| step.amounts[index]).sum();
        (0..self.series.len()).map(total).collect()
    }

    /// The legend shows the sum of the amounts, unless they cannot be added, such as percentages.
    fn legend(&self, steps: &[Step]) -> Vec<Key> {
        let adds_up = matches!(self.unit, Unit::Count | Unit::Bytes);
        let key = |(series, total): (&Series, f64)| Key {
            name: series.name.clone(),
            class: series.hue.class(),
            value: adds_up.then(|| self.unit.of(total).to_string()),
        };
        self.series
            .iter()
            .zip(self.totals(steps))
            .filter(|(series, _)| !series.name.is_empty())
            .map(key)
            .collect()
    }

    fn summary(&self, steps: &[Step]) -> String {
        let mut text = frame::summary(&self.title, &[], &self.axis, self.unit);
        for (series, total) in self.series.iter().zip(self.totals(steps)) {
            let _ = write!(text, " {}: {} in all.", series.name, self.unit.of(total));
        }
        text
    }
}

#[derive(Clone, Debug)]
struct Step {
    start_ms: u64,
    amounts: Vec<Option<f64>>,
}
