//! Retries of transactions.

use std::time::Duration;

use tokio::time::Instant;

/// Pauses that grow, each of random length so that those who were in each other's way do not meet again.
pub(crate) struct Backoff {
    deadline: Instant,
    pauses: u32,
}

const FIRST_MOST: Duration = Duration::from_millis(4);
const LONGEST: Duration = Duration::from_millis(250);
const MOST_PAUSES: u32 = 50;

impl Backoff {
    pub(crate) fn until(deadline: Instant) -> Self {
        Self { deadline, pauses: 0 }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Waits before the next attempt; `false` when there should be none.
    pub(crate) async fn pause(&mut self) -> bool {
        let most = FIRST_MOST.saturating_mul(1 << self.pauses.min(16)).min(LONGEST);
        let pause = most.mul_f64(rand::random::<f64>());
        self.pauses += 1;
        if self.pauses > MOST_PAUSES || Instant::now() + pause >= self.deadline {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }
}
