//! How fast a series grows: a line through its points.

/// A series without its beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Trend {
    /// The line at the first and at the last point.
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) per_hour: f64,
}

impl Trend {
    /// The least-squares line through points (seconds, value), without this share of the time at the beginning. `None` if
    /// fewer than two points are left.
    pub(super) fn of(points: &[(f64, f64)], without: f64) -> Option<Self> {
        let (first, last) = (points.first()?.0, points.last()?.0);
        let begin = first + (last - first) * without;
        let points: Vec<(f64, f64)> = points.iter().copied().filter(|(at, _)| *at >= begin).collect();
        let count = points.len() as f64;
        let mean_at = points.iter().map(|(at, _)| at).sum::<f64>() / count;
        let mean_value = points.iter().map(|(_, value)| value).sum::<f64>() / count;
        let spread: f64 = points.iter().map(|(at, _)| (at - mean_at).powi(2)).sum();
        if spread <= 0.0 {
            return None;
        }
        let slope =
            points.iter().map(|(at, value)| (at - mean_at) * (value - mean_value)).sum::<f64>() / spread;
        let line = |at: f64| mean_value + slope * (at - mean_at);
        Some(Self { from: line(begin), to: line(last), per_hour: slope * 3600.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::Trend;

    #[test]
    fn line_is_found_without_the_beginning() {
        let mut points: Vec<(f64, f64)> =
            (0..=90).map(|at| (f64::from(at), 5.0 + 2.0 * f64::from(at))).collect();
        for point in points.iter_mut().take(30) {
            point.1 = 1_000.0;
        }
        let trend = Trend::of(&points, 1.0 / 3.0).unwrap();
        assert!((trend.per_hour - 7_200.0).abs() < 1e-6, "{trend:?}");
        assert!((trend.from - 65.0).abs() < 1e-6 && (trend.to - 185.0).abs() < 1e-6, "{trend:?}");
    }

    #[test]
    fn one_point_has_no_trend() {
        assert_eq!(Trend::of(&[(1.0, 2.0)], 0.0), None);
        assert_eq!(Trend::of(&[], 0.0), None);
    }
}
