//! Series of values over time: their gaps, and how points are reduced to the width of a screen.

use super::axis::{TimeAxis, sane};
use super::canvas::WIDTH;
use crate::components::Tone;

/// Maximum number of series that a chart draws.
pub const MAX_SERIES: usize = 12;

/// Number of different colours. Further series use the same colours with dashed lines.
const PALETTE: usize = 6;

/// Number of columns that are visible in a plot. Each column keeps its smallest and largest value.
const COLUMNS: f64 = 360.0;

/// Longer names are cut after this many characters.
const MAX_NAME_CHARS: usize = 60;

/// A value at a moment. Without a value, or with NaN, it is a gap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub at_ms: u64,
    pub value: Option<f64>,
}

impl From<(u64, f64)> for Point {
    fn from((at_ms, value): (u64, f64)) -> Self {
        Self { at_ms, value: Some(value) }
    }
}

impl From<(u64, Option<f64>)> for Point {
    fn from((at_ms, value): (u64, Option<f64>)) -> Self {
        Self { at_ms, value }
    }
}

/// The colour of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hue {
    /// A colour of the palette.
    Number(usize),
    Tone(Tone),
}

impl Hue {
    /// The colour of what several charts show.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "p50" | "requests" | "successful" | "Items" | "Calls" | "A" => Self::Number(0),
            "p90" | "p95" | "B" => Self::Number(1),
            "p99" | "client errors" => Self::Number(3),
            "failed" | "server errors" => Self::Tone(Tone::Bad),
            "limited" => Self::Tone(Tone::Warn),
            _ => return None,
        })
    }

    pub(super) fn class(self) -> String {
        match self {
            Self::Number(number) if number < PALETTE => format!("s{number}"),
            Self::Number(number) => format!("s{} dashed", number % PALETTE),
            Self::Tone(tone) => tone.class().to_owned(),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) hue: Hue,
    /// The points in order of time, with values that can be drawn.
    points: Vec<Point>,
}

impl Series {
    pub(super) fn new<P: Into<Point>>(name: &str, hue: Hue, points: impl IntoIterator<Item = P>) -> Self {
        let sane_point = |point: P| {
            let Point { at_ms, value } = point.into();
            Point { at_ms, value: value.and_then(sane) }
        };
        let mut points: Vec<Point> = points.into_iter().map(sane_point).collect();
        points.sort_by_key(|point| point.at_ms);
        Self { name: name.chars().take(MAX_NAME_CHARS).collect(), hue, points }
    }

    pub(super) fn points_in<'a>(&'a self, axis: &'a TimeAxis) -> impl Iterator<Item = Point> + 'a {
        self.points.iter().copied().filter(|point| axis.holds(point.at_ms))
    }

    pub(super) fn values_in<'a>(&'a self, axis: &'a TimeAxis) -> impl Iterator<Item = f64> + 'a {
        self.points_in(axis).filter_map(|point| point.value)
    }

    /// The parts between gaps, with a reduced number of points: the position and value of each point.
    pub(super) fn runs(&self, axis: &TimeAxis, step_ms: Option<u64>) -> Vec<Vec<(f64, f64)>> {
        let hole_ms =
            step_ms.or_else(|| self.usual_step_ms()).map_or(u64::MAX, |step| step.saturating_mul(5) / 2);
        let mut runs: Vec<Vec<(f64, f64)>> = Vec::new();
        let mut last_ms = None;
        for Point { at_ms, value } in self.points_in(axis) {
            let Some(value) = value else {
                last_ms = None;
                continue;
            };
            let goes_on = last_ms.is_some_and(|last_ms: u64| at_ms - last_ms <= hole_ms);
            match runs.last_mut() {
                Some(run) if goes_on => run.push((axis.x(at_ms), value)),
                _ => runs.push(vec![(axis.x(at_ms), value)]),
            }
            last_ms = Some(at_ms);
        }
        merge_crowded(runs).iter().map(|run| thinned(run)).collect()
    }

    /// The median time between two points.
    fn usual_step_ms(&self) -> Option<u64> {
        let mut steps: Vec<u64> = self.points.windows(2).map(|pair| pair[1].at_ms - pair[0].at_ms).collect();
        if steps.is_empty() {
            return None;
        }
        let middle = steps.len() / 2;
        Some(*steps.select_nth_unstable(middle).1)
    }
}

/// If a part ends and the next one begins within the same column, they are joined: gaps that are narrower than a pixel
/// are not drawn, which limits their number.
fn merge_crowded(runs: Vec<Vec<(f64, f64)>>) -> Vec<Vec<(f64, f64)>> {
    if runs.len() as f64 <= COLUMNS {
        return runs;
    }
    let mut merged: Vec<Vec<(f64, f64)>> = Vec::new();
    for run in runs {
        match merged.last_mut() {
            Some(last)
                if last.last().map(|point| column(point.0)) == run.first().map(|point| column(point.0)) =>
            {
                last.extend(run);
            }
            _ => merged.push(run),
        }
    }
    merged
}

fn column(x: f64) -> u32 {
    (x / WIDTH * COLUMNS) as u32
}

/// Keeps the smallest and the largest value of each column, in their order.
fn thinned(run: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if run.len() as f64 <= COLUMNS {
        return run.to_vec();
    }
    let mut kept = Vec::new();
    for crowd in run.chunk_by(|a, b| column(a.0) == column(b.0)) {
        let mut extremes = [0, 0];
        for (index, point) in crowd.iter().enumerate() {
            if point.1 < crowd[extremes[0]].1 {
                extremes[0] = index;
            }
            if point.1 > crowd[extremes[1]].1 {
                extremes[1] = index;
            }
        }
        extremes.sort_unstable();
        kept.push(crowd[extremes[0]]);
        if extremes[0] != extremes[1] {
            kept.push(crowd[extremes[1]]);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(points: &[(u64, f64)], step_ms: Option<u64>) -> Vec<usize> {
        let axis = TimeAxis::new(&(0..100_000));
        let series = Series::new("s", Hue::Number(0), points.iter().copied());
        series.runs(&axis, step_ms).iter().map(Vec::len).collect()
    }

    #[test]
    fn nan_is_a_gap() {
        assert_eq!(runs(&[(0, 1.0), (1, 1.0), (2, f64::NAN), (3, 1.0)], None), [2, 1]);
    }

    #[test]
    fn distance_much_larger_than_the_step_is_a_gap() {
        let points = [(0, 1.0), (10, 1.0), (20, 1.0), (90, 1.0), (100, 1.0)];
        assert_eq!(runs(&points, None), [3, 2]);
        assert_eq!(runs(&points, Some(70)), [5]);
    }

    #[test]
    fn thinning_keeps_the_peaks() {
        let points: Vec<(u64, f64)> =
            (0..100_000).map(|at| (at, if at == 33_333 { 9.0 } else { 1.0 })).collect();
        let axis = TimeAxis::new(&(0..100_000));
        let run = Series::new("s", Hue::Number(0), points).runs(&axis, None).concat();
        assert!(run.len() <= 2 * COLUMNS as usize, "{}", run.len());
        assert!(run.iter().any(|point| point.1 == 9.0));
    }

    #[test]
    fn points_out_of_order_are_put_in_order() {
        assert_eq!(runs(&[(20, 1.0), (0, 1.0), (10, 1.0)], None), [3]);
    }
}
