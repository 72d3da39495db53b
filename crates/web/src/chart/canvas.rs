//! Numbers and paths in SVG syntax.

use std::fmt::{self, Display, Write};

/// The width of every plot, in its own units, because plots are stretched. Heights are in pixels.
pub(super) const WIDTH: f64 = 1000.0;

/// A coordinate, rounded to a tenth of a unit. NaN becomes 0, because it would break the whole path.
pub(super) struct Num(pub(super) f64);

impl Display for Num {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = if self.0.is_finite() { self.0.clamp(-1e6, 1e6) } else { 0.0 };
        let tenths = (number * 10.0).round() as i64;
        if tenths % 10 == 0 { write!(f, "{}", tenths / 10) } else { write!(f, "{}", tenths as f64 / 10.0) }
    }
}

/// The data of a `<path>`.
#[derive(Default)]
pub(super) struct Path(String);

impl Path {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A line through the points. A single point becomes a dot, because strokes have round ends.
    pub(super) fn line(&mut self, points: &[(f64, f64)]) {
        let mut command = 'M';
        for (x, y) in points {
            let _ = write!(self.0, "{command}{} {}", Num(*x), Num(*y));
            command = 'L';
        }
        if points.len() == 1 {
            self.0.push_str("h0");
        }
    }

    /// The area between a line and the height `floor`.
    pub(super) fn area(&mut self, points: &[(f64, f64)], floor: f64) {
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
        self.line(points);
        let _ = write!(self.0, "L{} {}H{}Z", Num(last.0), Num(floor), Num(first.0));
    }

    pub(super) fn rect(&mut self, x: f64, y: f64, width: f64, height: f64) {
        let _ = write!(self.0, "M{} {}h{}v{}h{}z", Num(x), Num(y), Num(width), Num(height), Num(-width));
    }
}

impl Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_short_and_always_numbers() {
        let shown = |number| Num(number).to_string();
        assert_eq!([shown(12.0), shown(0.04), shown(-1.26)], ["12", "0", "-1.3"]);
        assert_eq!([shown(f64::NAN), shown(f64::NEG_INFINITY), shown(1e300)], ["0", "0", "1000000"]);
    }

    #[test]
    fn lone_point_is_a_dot() {
        let mut path = Path::default();
        path.line(&[(1.0, 2.0)]);
        assert_eq!(path.to_string(), "M1 2h0");
    }
}
