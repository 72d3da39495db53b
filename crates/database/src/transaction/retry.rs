//! Retries of transactions.

use std::time::Duration;

use hob_units::Backoff;
use tokio::time::Instant;

const MAX_RETRIES: u32 = 50;

/// Waits between the attempts to run a transaction, until a deadline. The delays are random, so that transactions that
/// conflicted do not conflict again.
pub(crate) struct Retries {
    deadline: Instant,
    backoff: Backoff,
}

impl Retries {
    pub(crate) fn until(deadline: Instant) -> Self {
        let backoff = Backoff::exponential(Duration::from_millis(4), Duration::from_millis(250));
        Self { deadline, backoff: backoff.with_jitter(0.0..1.0) }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Waits before the next attempt. `false` if there should be none.
    pub(crate) async fn wait(&mut self) -> bool {
        let delay = self.backoff.next();
        if self.backoff.attempts() > MAX_RETRIES || Instant::now() + delay >= self.deadline {
            return false;
        }
        tokio::time::sleep(delay).await;
        true
    }
}
