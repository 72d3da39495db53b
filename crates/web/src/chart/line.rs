//! Lines over time, and areas below them.

use std::fmt::Write;
use std::ops::Range;

use super::axis::{Base, TimeAxis, ValueAxis, sane};
use super::canvas::{Num, Path};
use super::frame::{self, Frame, HEIGHT, Left, Limit};
use super::series::{Hue, MAX_SERIES, Point, Series};
use crate::components::{Escaped, Markup, Tone, Unit};

/// Maximum number of bands in a chart.
const MAX_BANDS: usize = 50;

/// A chart of values over time.
#[derive(Clone, Debug)]
#[must_use]
pub struct Line {
    axis: TimeAxis,
    title: String,
    unit: Unit,
    base: Base,
    fill: Fill,
    height: f64,
    step_ms: Option<u64>,
    series: Vec<Series>,
    bands: Vec<Band>,
    limits: Vec<Limit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    None,
    Below,
}

/// A marked period.
#[derive(Clone, Debug)]
struct Band {
    range: Range<u64>,
    tone: Tone,
    name: String,
}

impl Line {
    /// A chart of this time range, in Unix milliseconds.
    pub fn new(range_ms: Range<u64>) -> Self {
        Self::over(TimeAxis::new(&range_ms))
    }

    /// A chart of the time since a start, to compare what began at different times.
    pub fn elapsed(length_ms: u64) -> Self {
        Self::over(TimeAxis::elapsed(length_ms))
    }

    fn over(axis: TimeAxis) -> Self {
        Self {
            axis,
            title: String::new(),
            unit: Unit::Count,
            base: Base::Zero,
            fill: Fill::None,
            height: HEIGHT,
            step_ms: None,
            series: Vec::new(),
            bands: Vec::new(),
            limits: Vec::new(),
        }
    }

    /// The same with the areas below the lines filled.
    pub fn area(range_ms: Range<u64>) -> Self {
        Self { fill: Fill::Below, ..Self::new(range_ms) }
    }

    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    pub fn unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// A line with the next colour of the palette.
    pub fn series<P: Into<Point>>(self, name: &str, points: impl IntoIterator<Item = P>) -> Self {
        let hue = frame::hue_of(name, &self.series);
        self.add(name, hue, points)
    }

    /// A line with the colour of a tone.
    pub fn toned<P: Into<Point>>(self, name: &str, tone: Tone, points: impl IntoIterator<Item = P>) -> Self {
        self.add(name, Hue::Tone(tone), points)
    }

    fn add<P: Into<Point>>(mut self, name: &str, hue: Hue, points: impl IntoIterator<Item = P>) -> Self {
        if self.series.len() < MAX_SERIES {
            self.series.push(Series::new(name, hue, points));
        }
        self
    }

    /// The usual time between two points; a much longer time is a gap. By default it is estimated.
    pub fn every(mut self, step_ms: u64) -> Self {
        self.step_ms = Some(step_ms.max(1));
        self
    }

    /// Starts the axis at the smallest value, for values in a narrow range.
    pub fn zoomed(mut self) -> Self {
        self.base = Base::Least;
        self
    }

    /// The height of the plot in pixels.
    pub fn height(mut self, pixels: u32) -> Self {
        self.height = f64::from(pixels.clamp(40, 600));
        self
    }

    /// Marks a period, such as an incident.
    pub fn band(mut self, range_ms: Range<u64>, tone: Tone, name: impl Into<String>) -> Self {
        if self.bands.len() < MAX_BANDS {
            self.bands.push(Band { range: range_ms, tone, name: name.into() });
        }
        self
    }

    /// Draws a horizontal limit, such as an objective.
    pub fn limit(mut self, name: impl Into<String>, value: f64) -> Self {
        if let Some(value) = sane(value)
            && self.limits.len() < MAX_SERIES
        {
            self.limits.push(Limit { name: name.into(), value });
        }
        self
    }

    #[must_use]
    pub fn render(&self) -> Markup {
        let values = self.series.iter().flat_map(|series| series.values_in(&self.axis));
        let limits = self.limits.iter().map(|limit| limit.value);
        let scale = ValueAxis::over(values.chain(limits), self.unit, self.base);
        let is_empty = self.series.iter().all(|series| series.values_in(&self.axis).next().is_none());
        let mut marks = String::new();
        self.draw_bands(&mut marks);
        for series in &self.series {
            self.draw(&mut marks, series, &scale);
        }
        let notes = frame::draw_limits(&mut marks, &self.limits, &scale, self.unit, self.height);
        let columns = frame::columns(&self.series, &self.axis, self.unit);
        frame::draw_columns(&mut marks, &columns, self.height);
        let frame = Frame {
            title: self.title.clone(),
            summary: frame::summary(&self.title, &self.series, &self.axis, self.unit),
            height: self.height,
            left: Left::Scale(scale.ticks),
            below: self.axis.ticks(),
            notes,
            legend: frame::legend(&self.series, &self.axis, self.unit),
            columns: ("Time", columns),
            nothing: is_empty.then_some("No data in this time"),
        };
        frame.render(&marks)
    }

    fn draw(&self, svg: &mut String, series: &Series, scale: &ValueAxis) {
        let (mut line, mut area) = (Path::default(), Path::default());
        let floor = scale.y(0.0, self.height);
        for run in series.runs(&self.axis, self.step_ms) {
            let points: Vec<(f64, f64)> =
                run.iter().map(|(x, value)| (*x, scale.y(*value, self.height))).collect();
            line.line(&points);
            if self.fill == Fill::Below {
                area.area(&points, floor);
            }
        }
        let class = series.hue.class();
        if !area.is_empty() {
            let _ = write!(svg, r#"<path class="{class} area" d="{area}"/>"#);
        }
        if !line.is_empty() {
            let _ = write!(svg, r#"<path class="{class} line" d="{line}"/>"#);
        }
    }

    fn draw_bands(&self, svg: &mut String) {
        for Band { range, tone, name } in &self.bands {
            if range.end < self.axis.start_ms() || range.start > self.axis.end_ms() {
                continue;
            }
            let (from, to) = (self.axis.x(range.start), self.axis.x(range.end));
            // A narrower band would be invisible.
            let (x, width, height) = (Num(from), Num((to - from).max(2.0)), Num(self.height));
            let (class, name) = (tone.class(), Escaped(name));
            let _ = write!(
                svg,
                r#"<g class="band {class}"><rect x="{x}" y="0" width="{width}" height="{height}"><title>{name}</title></rect><rect class="edge" x="{x}" y="0" width="{width}" height="3"/></g>"#
            );
        }
    }
}
