//! A sparkline: a small line without axes.

use std::fmt::Write;

use super::axis::sane;
use super::canvas::{Num, Path};
use crate::components::{Escaped, Markup, Unit};

const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 40.0;
/// Space for the upper half of the stroke.
const PADDING: f64 = 3.0;
/// Maximum number of values in a line. The latest ones are shown.
const MAX_VALUES: usize = 240;

/// A small line of the latest values at equal distances. The axis starts at zero.
#[derive(Clone, Debug)]
#[must_use]
pub struct Spark {
    label: String,
    unit: Unit,
    values: Vec<Option<f64>>,
}

impl Spark {
    /// The line of these values, the latest last; NaN is a gap. The label names the values.
    pub fn new<V: Into<Option<f64>>>(
        label: impl Into<String>,
        unit: Unit,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        let mut values: Vec<Option<f64>> =
            values.into_iter().map(|value| value.into().and_then(sane).map(|value| value.max(0.0))).collect();
        values.drain(..values.len().saturating_sub(MAX_VALUES));
        Self { label: label.into(), unit, values }
    }

    #[must_use]
    pub fn render(&self) -> Markup {
        let most = self.values.iter().flatten().copied().fold(0.0, f64::max);
        let step = WIDTH / self.values.len().saturating_sub(1).max(1) as f64;
        let y = |value: f64| {
            HEIGHT - 1.0 - (HEIGHT - 1.0 - PADDING) * if most > 0.0 { value / most } else { 0.0 }
        };
        let (mut line, mut area) = (Path::default(), Path::default());
        let places: Vec<(f64, Option<f64>)> =
            self.values.iter().enumerate().map(|(index, value)| (index as f64 * step, *value)).collect();
        for run in places.split(|(_, value)| value.is_none()) {
            let points: Vec<(f64, f64)> =
                run.iter().filter_map(|(x, value)| Some((*x, y((*value)?)))).collect();
            line.line(&points);
            area.area(&points, HEIGHT);
        }
        let mut svg = format!(
            r#"<svg class="spark s0" width="100%" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{0}"><title>{0}</title>"#,
            Escaped(self.summary(most))
        );
        let _ = write!(svg, r#"<path class="base" d="M0 {0}H{WIDTH}"/>"#, Num(HEIGHT - 0.5));
        if !line.is_empty() {
            let _ = write!(svg, r#"<path class="area" d="{area}"/><path class="line" d="{line}"/>"#);
        }
        svg.push_str("</svg>");
        Markup::trusted(svg)
    }

    fn summary(&self, most: f64) -> String {
        match self.values.iter().rev().flatten().next() {
            None => format!("{}: no data yet", self.label),
            Some(latest) => {
                format!("{}: latest {}, at most {}", self.label, self.unit.of(*latest), self.unit.of(most))
            }
        }
    }
}
