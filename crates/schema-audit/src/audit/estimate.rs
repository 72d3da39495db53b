//! How many keys of a family break a rule, estimated from the keys of a sample.
//!
//! A sample without replacement from `population` keys, `affected` of which break the rule, has a hypergeometric number of them.
//! The bounds invert its tail probabilities exactly, so they hold for small samples and rare violations, too.

use serde::{Deserialize, Serialize};

/// How often the stated bounds hold.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// The probability of an error on one side of an interval.
const TAIL: f64 = (1.0 - CONFIDENCE) / 2.0;

/// An estimated number of keys, and the interval that contains the true number with a probability of at least 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    pub keys: u64,
    pub low: u64,
    pub high: u64,
}

/// A random part of a set of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drawn {
    pub(crate) population: u64,
    pub(crate) sample: u64,
}

impl Drawn {
    /// The keys of the population that break a rule if `found` of the sample do.
    pub(crate) fn estimate(self, found: u64) -> Estimate {
        let Drawn { population, sample } = self;
        if sample == 0 {
            return Estimate { keys: 0, low: 0, high: population };
        }
        let scaled = u128::from(found) * u128::from(population) / u128::from(sample);
        let (least, most) = self.possible(found);
        let low = first(least, most, |affected| self.at_least(found, affected) > TAIL);
        let high = last(low, most, |affected| self.at_most(found, affected) > TAIL);
        Estimate { keys: u64::try_from(scaled).unwrap_or(u64::MAX).clamp(low, high), low, high }
    }

    /// The largest number of keys that may break a rule which no key of the sample breaks (95 %, one-sided). For a small part of
    /// a large family, this is close to the rule of three: three keys in a sample of that size.
    pub(crate) fn unseen(self) -> u64 {
        let (least, most) = self.possible(0);
        last(least, most, |affected| self.at_most(0, affected) > 1.0 - CONFIDENCE)
    }

    /// The smallest and the largest number that the sample does not rule out.
    fn possible(self, found: u64) -> (u64, u64) {
        (found, found + (self.population - self.sample))
    }

    /// The probability of at most `found` keys in the sample if so many are affected.
    fn at_most(self, found: u64, affected: u64) -> f64 {
        let mean = self.sample as f64 * affected as f64 / self.population as f64;
        // Of the two tails the one whose terms become smaller is added up.
        if (found as f64) < mean {
            self.downward(found, affected)
        } else {
            (1.0 - self.upward(found + 1, affected)).max(0.0)
        }
    }

    fn at_least(self, found: u64, affected: u64) -> f64 {
        if found == 0 { 1.0 } else { 1.0 - self.at_most(found - 1, affected) }
    }

    fn downward(self, found: u64, affected: u64) -> f64 {
        let mut term = self.probability(found, affected);
        let mut sum = term;
        let (mut x, others) = (found as f64, (self.population - affected) as f64);
        let (affected, sample) = (affected as f64, self.sample as f64);
        while x > 0.0 && term > sum * f64::EPSILON {
            term *= x * (others - sample + x) / ((affected - x + 1.0) * (sample - x + 1.0));
            sum += term.max(0.0);
            x -= 1.0;
        }
        sum
    }

    fn upward(self, found: u64, affected: u64) -> f64 {
        let mut term = self.probability(found, affected);
        let mut sum = term;
        let (mut x, others) = (found as f64, (self.population - affected) as f64);
        let (affected, sample) = (affected as f64, self.sample as f64);
        while x < sample && term > sum * f64::EPSILON {
            term *= (affected - x) * (sample - x) / ((x + 1.0) * (others - sample + x + 1.0));
            sum += term.max(0.0);
            x += 1.0;
        }
        sum
    }

    /// The probability of exactly `found` keys in the sample.
    fn probability(self, found: u64, affected: u64) -> f64 {
        let Drawn { population, sample } = self;
        let others = population - affected;
        if found > affected || found > sample || sample - found > others {
            return 0.0;
        }
        let chosen = ln_choose(affected, found) + ln_choose(others, sample - found);
        (chosen - ln_choose(population, sample)).exp()
    }
}

/// The smallest number in the range for which a test holds that holds for all larger ones; the last if there is none.
fn first(mut low: u64, mut high: u64, holds: impl Fn(u64) -> bool) -> u64 {
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// The largest number in the range for which a test holds that holds for all smaller ones; the first if there is none.
fn last(mut low: u64, mut high: u64, holds: impl Fn(u64) -> bool) -> u64 {
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if holds(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

fn ln_choose(of: u64, chosen: u64) -> f64 {
    ln_factorial(of) - ln_factorial(chosen) - ln_factorial(of - chosen)
}

fn ln_factorial(number: u64) -> f64 {
    if number < 32 {
        return (2..=number).map(|factor| (factor as f64).ln()).sum();
    }
    // Stirling's series; the next term is below 1e-14.
    let n = number as f64;
    let series = 1.0 / (12.0 * n) - 1.0 / (360.0 * n.powi(3)) + 1.0 / (1260.0 * n.powi(5));
    n * n.ln() - n + 0.5 * (std::f64::consts::TAU * n).ln() + series
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whole_population_leaves_no_doubt() {
        let all = Drawn { population: 500, sample: 500 };
        assert_eq!(all.estimate(7), Estimate { keys: 7, low: 7, high: 7 });
        assert_eq!(all.unseen(), 0);
    }

    #[test]
    fn empty_sample_says_nothing() {
        let none = Drawn { population: 500, sample: 0 };
        assert_eq!(none.estimate(0), Estimate { keys: 0, low: 0, high: 500 });
        assert_eq!(none.unseen(), 500);
    }

    /// Values of R: `binom.test(10, 1000)$conf.int` is 0.0048 to 0.0183, and `phyper` gives the bounds of small populations.
    #[test]
    fn known_intervals() {
        let rare = Drawn { population: 100_000_000, sample: 1_000 }.estimate(10);
        assert_eq!(rare.keys, 1_000_000);
        assert!(
            (480_000..481_500).contains(&rare.low) && (1_830_000..1_832_000).contains(&rare.high),
            "{rare:?}"
        );
        let unseen = Drawn { population: 1_000_000, sample: 10_000 }.unseen();
        assert!((294..=300).contains(&unseen), "close to 3 / 10,000 of a million: {unseen}");
    }

    /// The sum over all samples, weighted by their probability, for which the interval contains the truth.
    fn coverage(drawn: Drawn, affected: u64) -> f64 {
        (0..=drawn.sample.min(affected))
            .filter(|found| {
                let estimate = drawn.estimate(*found);
                drawn.probability(*found, affected) > 0.0
                    && (estimate.low..=estimate.high).contains(&affected)
            })
            .map(|found| drawn.probability(found, affected))
            .sum()
    }

    proptest! {
        #[test]
        fn interval_contains_the_truth_with_the_stated_probability(
            population in 1_u64..3_000,
            share in 0.0..=1.0_f64,
            affected in 0.0..=1.0_f64,
        ) {
            let sample = (population as f64 * share) as u64;
            let affected = (population as f64 * affected) as u64;
            let covered = coverage(Drawn { population, sample }, affected);
            prop_assert!(covered >= CONFIDENCE - 1e-6, "{covered}");
            // If the bound for what was not seen excludes the truth, seeing nothing was improbable.
            let drawn = Drawn { population, sample };
            if affected > drawn.unseen() {
                prop_assert!(drawn.probability(0, affected) <= 1.0 - CONFIDENCE + 1e-6);
            }
        }

        #[test]
        fn logarithm_of_a_factorial_is_exact(number in 0_u64..400) {
            let summed: f64 = (2..=number).map(|factor| (factor as f64).ln()).sum();
            prop_assert!((ln_factorial(number) - summed).abs() < 1e-9 * summed.max(1.0));
        }
    }
}
