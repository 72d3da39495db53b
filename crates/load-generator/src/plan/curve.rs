//! Load over time: a level that changes linearly. The level is a rate of arrivals or a number of users.

use std::time::Duration;

/// A level over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve(Vec<Segment>);

/// A linear change from one level to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    pub from: f64,
    pub to: f64,
    pub seconds: f64,
}

impl Curve {
    pub(super) fn new(segments: Vec<Segment>) -> Self {
        Self(segments)
    }

    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.0.iter().map(|segment| segment.seconds).sum())
    }

    #[must_use]
    pub fn peak(&self) -> f64 {
        self.0.iter().fold(0.0, |peak, segment| peak.max(segment.from).max(segment.to))
    }

    /// The curve with all levels multiplied by `factor`.
    #[must_use]
    pub fn times(&self, factor: f64) -> Self {
        Self(
            self.0
                .iter()
                .map(|segment| Segment { from: segment.from * factor, to: segment.to * factor, ..*segment })
                .collect(),
        )
    }

    /// The level after a time; 0 after the end.
    #[must_use]
    pub fn at(&self, after: Duration) -> f64 {
        let mut left = after.as_secs_f64();
        for segment in &self.0 {
            if left < segment.seconds {
                return segment.from + (segment.to - segment.from) * left / segment.seconds;
            }
            left -= segment.seconds;
        }
        0.0
    }

    /// The next period, from `from` on, in which the curve is above `level`.
    #[must_use]
    pub fn above(&self, level: f64, from: Duration) -> Option<(Duration, Duration)> {
        let from = from.as_secs_f64();
        let (mut begin, mut found) = (0.0, None);
        for segment in &self.0 {
            let end = begin + segment.seconds;
            if let Some((enter, exit)) = segment.above(level) {
                let (enter, exit) = ((begin + enter).max(from), begin + exit);
                found = match found {
                    None if exit > enter => Some((enter, exit)),
                    Some((first, last)) if enter <= last => Some((first, exit)),
                    found => found,
                };
            }
            begin = end;
        }
        found.map(|(enter, exit)| (Duration::from_secs_f64(enter), Duration::from_secs_f64(exit)))
    }

    /// The times of arrivals, for a curve of rates.
    #[must_use]
    pub fn arrivals(&self, spacing: Spacing) -> Arrivals<'_> {
        Arrivals { segments: &self.0, begin: 0.0, passed: 0.0, due: None, spacing }
    }
}

impl Segment {
    /// The part of the segment that is above `level`.
    fn above(&self, level: f64) -> Option<(f64, f64)> {
        let crossing = || self.seconds * (level - self.from) / (self.to - self.from);
        match (self.from > level, self.to > level) {
            (true, true) => Some((0.0, self.seconds)),
            (false, true) => Some((crossing(), self.seconds)),
            (true, false) => Some((0.0, crossing())),
            (false, false) => None,
        }
    }

    fn arrivals(&self) -> f64 {
        (self.from + self.to) / 2.0 * self.seconds
    }

    /// When the integral of the rate reaches `n`.
    fn time_of(&self, n: f64) -> f64 {
        if n <= 0.0 {
            return 0.0;
        }
        let slope = (self.to - self.from) / self.seconds;
        if slope.abs() < 1e-12 {
            return n / self.from;
        }
        // The smaller root of slope/2·t² + from·t = n, in a numerically stable form.
        2.0 * n / (self.from + (self.from * self.from + 2.0 * slope * n).max(0.0).sqrt())
    }
}

/// The spacing of arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// Evenly spaced.
    Even,
    /// Independent of each other; the same seed gives the same arrivals.
    Poisson { seed: u64 },
}

/// The times of arrivals, in seconds from the start.
#[derive(Clone, Debug)]
pub struct Arrivals<'a> {
    segments: &'a [Segment],
    begin: f64,
    /// The number of arrivals in the segments before.
    passed: f64,
    /// The position of the last arrival on the integral of the rate.
    due: Option<f64>,
    spacing: Spacing,
}

impl Iterator for Arrivals<'_> {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        let due = match (self.due, self.spacing.step()) {
            (Some(due), step) => due + step,
            (None, step) if self.spacing != Spacing::Even => step,
            (None, _) => 0.0,
        };
        self.due = Some(due);
        while let Some(segment) = self.segments.first() {
            if due - self.passed < segment.arrivals() {
                return Some(self.begin + segment.time_of(due - self.passed));
            }
            self.passed += segment.arrivals();
            self.begin += segment.seconds;
            self.segments = &self.segments[1..];
        }
        None
    }
}

impl Spacing {
    /// The distance to the next arrival on the integral: 1, or 1 on average.
    fn step(&mut self) -> f64 {
        match self {
            Self::Even => 1.0,
            Self::Poisson { seed } => {
                let uniform = (split_mix(seed) >> 11) as f64 / (1_u64 << 53) as f64;
                -(1.0 - uniform).ln()
            }
        }
    }
}

/// SplitMix64. Not a library's generator: all runners must draw the same numbers, whatever version they were built with.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segment(from: f64, to: f64, seconds: f64) -> Segment {
        Segment { from, to, seconds }
    }

    #[test]
    fn constant_rate_is_evenly_spaced() {
        let curve = Curve::new(vec![segment(4.0, 4.0, 1.0)]);
        assert_eq!(curve.arrivals(Spacing::Even).collect::<Vec<_>>(), [0.0, 0.25, 0.5, 0.75]);
    }

    #[test]
    fn ramp_has_as_many_arrivals_as_the_area_under_it() {
        let curve = Curve::new(vec![segment(0.0, 100.0, 10.0), segment(100.0, 0.0, 10.0)]);
        let times: Vec<f64> = curve.arrivals(Spacing::Even).collect();
        assert_eq!(times.len(), 1000);
        assert!(times.is_sorted() && *times.last().unwrap() < 20.0);
        assert_eq!(times.iter().filter(|time| **time < 10.0).count(), 500);
    }

    #[test]
    fn poisson_arrivals_have_the_expected_mean_and_deviation() {
        let curve = Curve::new(vec![segment(1000.0, 1000.0, 20.0)]);
        let times: Vec<f64> = curve.arrivals(Spacing::Poisson { seed: 7 }).collect();
        assert!((19_500..20_500).contains(&times.len()), "{}", times.len());
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!(
            (variance.sqrt() / mean - 1.0).abs() < 0.05,
            "the deviation of an exponential distribution is its mean"
        );
        assert_eq!(times, curve.arrivals(Spacing::Poisson { seed: 7 }).collect::<Vec<_>>());
    }

    #[test]
    fn user_is_active_while_the_level_is_above_its_number() {
        let curve =
            Curve::new(vec![segment(0.0, 10.0, 10.0), segment(10.0, 10.0, 5.0), segment(10.0, 0.0, 10.0)]);
        let (enter, exit) = curve.above(4.0, Duration::ZERO).unwrap();
        assert_eq!((enter.as_secs(), exit.as_secs()), (4, 21));
        assert_eq!(curve.above(4.0, Duration::from_secs(22)), None);
        assert_eq!(curve.above(10.0, Duration::ZERO), None);
    }

    proptest! {
        #[test]
        fn arrivals_are_in_order(levels in prop::collection::vec(0.0..500.0_f64, 2..6)) {
            let segments = levels.windows(2).map(|pair| segment(pair[0], pair[1], 1.5)).collect();
            let curve = Curve::new(segments);
            let times: Vec<f64> = curve.arrivals(Spacing::Even).collect();
            prop_assert!(times.is_sorted());
            prop_assert!(times.iter().all(|time| *time <= curve.duration().as_secs_f64() + 1e-6));
        }
    }
}
