//! The rate limit of one connection: a token bucket.

use std::time::Instant;

/// Allows a burst of `max`, and `per_second` in the long run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    per_second: f64,
    max: f64,
    tokens: f64,
    refilled_at: Instant,
}

impl TokenBucket {
    pub(crate) fn new(per_second: u32, max: u32, now: Instant) -> Self {
        let max = f64::from(max.max(1));
        Self { per_second: f64::from(per_second.max(1)), max, tokens: max, refilled_at: now }
    }

    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.refilled_at).as_secs_f64();
        self.refilled_at = now;
        self.tokens = (self.tokens + passed * self.per_second).min(self.max);
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn burst_passes_then_steady_rate() {
        let begun = Instant::now();
        let mut bucket = TokenBucket::new(2, 3, begun);
        let passed = (0..10).filter(|_| bucket.take(begun)).count();
        assert_eq!(passed, 3);
        assert!(!bucket.take(begun + Duration::from_millis(499)));
        assert!(bucket.take(begun + Duration::from_millis(1_000)));
    }
}
