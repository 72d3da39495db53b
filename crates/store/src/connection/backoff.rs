//! The delay before a new attempt to connect (C15).

use std::time::Duration;

use hob_units::Backoff;

/// 50 ms × attempt, at most 2 s, with jitter, so that many clients of one server do not reconnect at the same moment.
pub(crate) const RECONNECT: Backoff =
    Backoff::linear(Duration::from_millis(50), Duration::from_secs(2)).with_jitter(0.5..1.0);

#[cfg(test)]
mod tests {
    use super::*;

    /// C15.
    #[test]
    fn delays_grow_by_50_ms_up_to_2_s_and_start_again_after_a_success() {
        let mut backoff = RECONNECT.clone();
        for attempt in 1..=100u64 {
            let bound = (50 * attempt).min(2000);
            let delay = u64::try_from(backoff.next().as_millis()).unwrap();
            assert!((bound / 2..=bound).contains(&delay), "attempt {attempt}: {delay} ms");
        }
        backoff.reset();
        assert!(backoff.next() <= Duration::from_millis(50));
    }
}
