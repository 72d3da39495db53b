//! How much load there is at which time: levels that change in straight lines, of arrivals per second or of
//! users.

use std::time::Duration;

/// Levels over time. A level is a rate or a number of users.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve(Vec<Leg>);

/// A straight line from one level to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Leg {
    pub from: f64,
    pub to: f64,
    pub seconds: f64,
}

impl Curve {
    pub(super) fn new(legs: Vec<Leg>) -> Self {
        Self(legs)
    }

    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.0.iter().map(|leg| leg.seconds).sum())
    }

    #[must_use]
    pub fn peak(&self) -> f64 {
        self.0.iter().fold(0.0, |peak, leg| peak.max(leg.from).max(leg.to))
    }

    /// The same curve with all levels times `factor`.
    #[must_use]
    pub fn times(&self, factor: f64) -> Self {
        Self(self.0.iter().map(|leg| Leg { from: leg.from * factor, to: leg.to * factor, ..*leg }).collect())
    }

    /// The level after so long; nothing after the end.
    #[must_use]
    pub fn at(&self, after: Duration) -> f64 {
        let mut left = after.as_secs_f64();
        for leg in &self.0 {
            if left < leg.seconds {
                return leg.from + (leg.to - leg.from) * left / leg.seconds;
            }
            left -= leg.seconds;
        }
        0.0
    }

    /// The next time, from `from` on, that more than `level` is reached, and when it no longer is.
    #[must_use]
    pub fn above(&self, level: f64, from: Duration) -> Option<(Duration, Duration)> {
        let from = from.as_secs_f64();
        let (mut begin, mut found) = (0.0, None);
        for leg in &self.0 {
            let end = begin + leg.seconds;
            if let Some((enter, exit)) = leg.above(level) {
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

    /// The times of arrivals, if the levels are rates.
    #[must_use]
    pub fn arrivals(&self, spacing: Spacing) -> Arrivals<'_> {
        Arrivals { legs: &self.0, begin: 0.0, passed: 0.0, due: None, spacing }
    }
}

impl Leg {
    /// From when to when within the leg more than `level` is there.
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
        // The smaller root of slope/2·t² + from·t = n, in the form that loses no digits.
        2.0 * n / (self.from + (self.from * self.from + 2.0 * slope * n).max(0.0).sqrt())
    }
}

/// How arrivals follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// As evenly as the rate allows.
    Even,
    /// Each without regard to the others; the same for the same seed.
    Poisson { seed: u64 },
}

/// The times of arrivals, in seconds from the start.
#[derive(Clone, Debug)]
pub struct Arrivals<'a> {
    legs: &'a [Leg],
    begin: f64,
    /// The arrivals of the legs that are over.
    passed: f64,
    /// Where the next arrival is on the integral of the rate.
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
        while let Some(leg) = self.legs.first() {
            if due - self.passed < leg.arrivals() {
                return Some(self.begin + leg.time_of(due - self.passed));
            }
            self.passed += leg.arrivals();
            self.begin += leg.seconds;
            self.legs = &self.legs[1..];
        }
        None
    }
}

impl Spacing {
    /// How far the next arrival is, in arrivals: 1, or 1 on average.
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

/// Of our own, since all runners of a run must draw the same numbers whatever they were built with.
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

    fn leg(from: f64, to: f64, seconds: f64) -> Leg {
        Leg { from, to, seconds }
    }

    #[test]
    fn a_constant_rate_is_even() {
        let curve = Curve::new(vec![leg(4.0, 4.0, 1.0)]);
        assert_eq!(curve.arrivals(Spacing::Even).collect::<Vec<_>>(), [0.0, 0.25, 0.5, 0.75]);
    }

    #[test]
    fn a_ramp_brings_as_many_as_the_area_under_it() {
        let curve = Curve::new(vec![leg(0.0, 100.0, 10.0), leg(100.0, 0.0, 10.0)]);
        let times: Vec<f64> = curve.arrivals(Spacing::Even).collect();
        assert_eq!(times.len(), 1000);
        assert!(times.is_sorted() && *times.last().unwrap() < 20.0);
        assert_eq!(times.iter().filter(|time| **time < 10.0).count(), 500);
    }

    #[test]
    fn poisson_arrivals_have_the_mean_and_the_spread_of_their_kind() {
        let curve = Curve::new(vec![leg(1000.0, 1000.0, 20.0)]);
        let times: Vec<f64> = curve.arrivals(Spacing::Poisson { seed: 7 }).collect();
        assert!((19_500..20_500).contains(&times.len()), "{}", times.len());
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "an exponential's spread is its mean");
        assert_eq!(times, curve.arrivals(Spacing::Poisson { seed: 7 }).collect::<Vec<_>>());
    }

    #[test]
    fn a_user_is_there_while_the_level_is_above_its_number() {
        let curve = Curve::new(vec![leg(0.0, 10.0, 10.0), leg(10.0, 10.0, 5.0), leg(10.0, 0.0, 10.0)]);
        let (enter, exit) = curve.above(4.0, Duration::ZERO).unwrap();
        assert_eq!((enter.as_secs(), exit.as_secs()), (4, 21));
        assert_eq!(curve.above(4.0, Duration::from_secs(22)), None);
        assert_eq!(curve.above(10.0, Duration::ZERO), None);
    }

    proptest! {
        #[test]
        fn arrivals_never_run_backwards(levels in prop::collection::vec(0.0..500.0_f64, 2..6)) {
            let legs = levels.windows(2).map(|pair| leg(pair[0], pair[1], 1.5)).collect();
            let curve = Curve::new(legs);
            let times: Vec<f64> = curve.arrivals(Spacing::Even).collect();
            prop_assert!(times.is_sorted());
            prop_assert!(times.iter().all(|time| *time <= curve.duration().as_secs_f64() + 1e-6));
        }
    }
}
