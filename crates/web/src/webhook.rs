//! What webhooks of all services have in common: their signature, and when a failed attempt is repeated.

pub mod signature;

use std::time::Duration;

/// The longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(30 * 60);
/// Bytes of a message that are kept.
const MAX_MESSAGE_BYTES: usize = 300;

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    Delivered(String),
    Failed(String),
    /// A retry cannot succeed.
    PermanentFailure(String),
}

/// How many attempts, and the pause between them.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    pub max_attempts: u32,
    pub first_pause: Duration,
}

/// What becomes of a delivery after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterAttempt {
    Delivered,
    /// The next attempt is made after this pause.
    Retry(Duration),
    /// All attempts failed.
    Failed,
}

impl RetryPolicy {
    /// What becomes of a delivery after its `nth` attempt.
    #[must_use]
    pub fn after(&self, nth: u32, outcome: &DeliveryOutcome) -> AfterAttempt {
        match outcome {
            DeliveryOutcome::Delivered(_) => AfterAttempt::Delivered,
            DeliveryOutcome::PermanentFailure(_) => AfterAttempt::Failed,
            DeliveryOutcome::Failed(_) if nth >= self.max_attempts => AfterAttempt::Failed,
            DeliveryOutcome::Failed(_) => {
                let doubled = self.first_pause.saturating_mul(1 << nth.saturating_sub(1).min(20));
                // Jitter, so that a receiver that recovers does not get all deliveries at once.
                AfterAttempt::Retry(MAX_PAUSE.min(doubled).mul_f64(rand::random_range(0.75..1.25)))
            }
        }
    }
}

impl DeliveryOutcome {
    /// The response, or why there was none, shortened to what is kept.
    #[must_use]
    pub fn message(&self) -> &str {
        let (Self::Delivered(message) | Self::Failed(message) | Self::PermanentFailure(message)) = self;
        &message[..message.floor_char_boundary(MAX_MESSAGE_BYTES)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_attempts_are_bounded() {
        let retry_policy = RetryPolicy { max_attempts: 12, first_pause: Duration::from_secs(10) };
        let failed = DeliveryOutcome::Failed(String::new());
        for (nth, least_s, most_s) in [(1, 7, 13), (2, 15, 25), (3, 30, 50), (11, 1350, 2250)] {
            let AfterAttempt::Retry(pause) = retry_policy.after(nth, &failed) else { panic!("{nth}") };
            assert!((least_s..=most_s).contains(&pause.as_secs()), "{nth}: {pause:?}");
        }
        assert_eq!(retry_policy.after(12, &failed), AfterAttempt::Failed);
        let permanent = DeliveryOutcome::PermanentFailure(String::new());
        assert_eq!(retry_policy.after(1, &permanent), AfterAttempt::Failed);
        let delivered = DeliveryOutcome::Delivered(String::new());
        assert_eq!(retry_policy.after(12, &delivered), AfterAttempt::Delivered);
    }
}
