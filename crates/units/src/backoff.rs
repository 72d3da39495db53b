//! Delays between attempts.

use std::ops::Range;
use std::time::Duration;

/// Delays that grow with each failed attempt, up to a maximum, with optional jitter.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    growth: Growth,
    jitter: Range<f64>,
    attempts: u32,
}

#[derive(Clone, Copy, Debug)]
enum Growth {
    Linear,
    Exponential,
}

impl Backoff {
    /// `step`, 2 × `step`, 3 × `step`, …, at most `max`.
    #[must_use]
    pub const fn linear(step: Duration, max: Duration) -> Self {
        Self { first: step, max, growth: Growth::Linear, jitter: 1.0..1.0, attempts: 0 }
    }

    /// `first`, 2 × `first`, 4 × `first`, …, at most `max`.
    #[must_use]
    pub const fn exponential(first: Duration, max: Duration) -> Self {
        Self { first, max, growth: Growth::Exponential, jitter: 1.0..1.0, attempts: 0 }
    }

    /// Multiplies each delay by a random factor from this range, so that clients that failed together do not retry
    /// together. The factor is applied after the maximum, so a factor above 1.0 can make a delay longer than `max`.
    #[must_use]
    pub const fn with_jitter(mut self, factors: Range<f64>) -> Self {
        self.jitter = factors;
        self
    }

    /// Counts a failed attempt and returns the delay before the next one.
    #[allow(clippy::should_implement_trait, reason = "the delays never end, and are not iterated over")]
    pub fn next(&mut self) -> Duration {
        self.attempts = self.attempts.saturating_add(1);
        self.delay_after(self.attempts, rand::random())
    }

    /// Starts again after a success.
    pub fn reset(&mut self) {
        self.attempts = 0;
    }

    /// The failed attempts since the last success.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The delay after this many failures, for callers that count them themselves, such as in the database. `random`,
    /// between 0 and 1, chooses the jitter.
    #[must_use]
    pub fn delay_after(&self, attempts: u32, random: f64) -> Duration {
        let factor = match self.growth {
            Growth::Linear => attempts.max(1),
            Growth::Exponential => 1 << attempts.saturating_sub(1).min(31),
        };
        let delay = self.first.saturating_mul(factor).min(self.max);
        let Range { start, end } = self.jitter;
        // Without jitter the delay is exact.
        if start == 1.0 && end == 1.0 { delay } else { delay.mul_f64(start + (end - start) * random) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn linear_delays_grow_by_a_step_up_to_the_maximum() {
        let mut backoff = Backoff::linear(ms(200), ms(500));
        assert_eq!(
            [backoff.next(), backoff.next(), backoff.next(), backoff.next()],
            [ms(200), ms(400), ms(500), ms(500)]
        );
    }

    #[test]
    fn exponential_delays_double_up_to_the_maximum() {
        let mut backoff = Backoff::exponential(ms(4), ms(20));
        assert_eq!(
            [backoff.next(), backoff.next(), backoff.next(), backoff.next()],
            [ms(4), ms(8), ms(16), ms(20)]
        );
        assert_eq!(backoff.attempts(), 4);
        backoff.reset();
        assert_eq!((backoff.attempts(), backoff.next()), (0, ms(4)));
    }

    #[test]
    fn jitter_chooses_from_its_range() {
        let backoff = Backoff::linear(ms(100), ms(1_000)).with_jitter(0.5..1.0);
        assert_eq!(backoff.delay_after(2, 0.0), ms(100));
        assert_eq!(backoff.delay_after(2, 0.5), ms(150));
        assert_eq!(backoff.delay_after(2, 1.0), ms(200));
        let mut backoff = backoff;
        for attempt in 1..=20 {
            let bound = ms(100 * attempt).min(ms(1_000));
            assert!((bound / 2..=bound).contains(&backoff.next()));
        }
    }

    #[test]
    fn many_attempts_do_not_overflow() {
        for backoff in [Backoff::linear(ms(1), ms(50)), Backoff::exponential(ms(1), ms(50))] {
            assert_eq!(backoff.delay_after(0, 0.0), ms(1));
            assert_eq!(backoff.delay_after(u32::MAX, 0.0), ms(50));
        }
        let endless = Backoff::exponential(Duration::MAX, Duration::MAX);
        assert_eq!(endless.delay_after(u32::MAX, 0.0), Duration::MAX);
    }
}
