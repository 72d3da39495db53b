//! The pauses between attempts to connect (C15): 50 ms × attempt, at most 2 s, jittered.

use std::time::Duration;

const STEP_MS: u32 = 50;
const MAX_MS: u32 = 2000;

/// Counts failed attempts in a row.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    attempt: u32,
}

impl Backoff {
    pub(crate) fn reset(&mut self) {
        self.attempt = 0;
    }

    /// The pause before the next attempt: between half and all of its bound, so that many clients
    /// of one server do not reconnect at the same moment.
    pub(crate) fn next(&mut self) -> Duration {
        self.attempt = self.attempt.saturating_add(1);
        let bound = self.attempt.saturating_mul(STEP_MS).min(MAX_MS);
        Duration::from_millis(u64::from(rand::random_range(bound / 2..=bound)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C15.
    #[test]
    fn pauses_grow_by_50_ms_up_to_2_s_and_start_again_after_a_success() {
        let mut backoff = Backoff::default();
        for attempt in 1..=100u64 {
            let bound = (50 * attempt).min(2000);
            let pause = u64::try_from(backoff.next().as_millis()).unwrap();
            assert!((bound / 2..=bound).contains(&pause), "attempt {attempt}: {pause} ms");
        }
        backoff.reset();
        assert!(backoff.next() <= Duration::from_millis(50));
    }
}
