//! Heartbeats: jobs that call this service. A call is a result; a missing call after the deadline is a failure.

use std::time::Duration;

use hob_units::Secret;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::monitor::check::Heartbeat;
use crate::schedule::millis;
use crate::schedule::state::{MonitorHealth, MonitorState};

/// 160 bits in hexadecimal.
const TOKEN_BYTES: usize = 40;
/// The part of a token that the database looks up.
const LOOKUP_BYTES: usize = 16;

/// What a job reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeartbeatSignal {
    Started,
    Succeeded,
    Failed,
}

/// A new token.
pub(crate) fn new_token() -> Secret {
    format!("{:032x}{:08x}", rand::random::<u128>(), rand::random::<u32>()).into()
}

/// The part of a token that the database looks up; `None` if the text is not a token. An index compares byte by byte and
/// stops at the first difference, which the time of a response can show. So only this part is looked up, and the whole
/// token is compared in constant time: 96 bits stay unknown.
pub(crate) fn lookup_part(token: &str) -> Option<&str> {
    let is_token = token.len() == TOKEN_BYTES && token.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_token.then(|| &token[..LOOKUP_BYTES])
}

impl Heartbeat {
    /// The deadline of the next call of a job that called, or missed its deadline, at `now_ms`.
    #[must_use]
    pub fn deadline_ms(&self, interval: Duration, now_ms: u64) -> u64 {
        self.expected_ms(now_ms).unwrap_or(now_ms + millis(interval)) + u64::from(self.grace_s) * 1000
    }

    /// The health of a job that has been silent since `since_ms`, and when it is checked next: deadlines that have passed
    /// are failures, as if the store had not lost them. The check that follows opens the incident, if one is due.
    #[must_use]
    pub(crate) fn after_silence(
        &self,
        interval: Duration,
        since_ms: u64,
        now_ms: u64,
        retries: u32,
    ) -> (MonitorHealth, u64) {
        let mut health = MonitorHealth::NEW;
        let mut deadline_ms = self.deadline_ms(interval, since_ms);
        while deadline_ms <= now_ms && health.failures < retries.max(1) {
            let first_failure_ms = if health.failures == 0 { deadline_ms } else { health.first_failure_ms };
            health = MonitorHealth {
                state: MonitorState::Suspect,
                failures: health.failures + 1,
                first_failure_ms,
                last_failure_ms: deadline_ms,
                last_ms: deadline_ms,
                ..health
            };
            deadline_ms = self.deadline_ms(interval, deadline_ms);
        }
        (health, if health.failures > retries { now_ms } else { deadline_ms })
    }

    /// The longest time between two calls of a healthy job, estimated from the next two.
    #[must_use]
    pub fn max_silence(&self, interval: Duration) -> Duration {
        let Some(_) = &self.cron else { return interval + self.grace() };
        let now_ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
        let next_ms = self.expected_ms(now_ms).unwrap_or(now_ms);
        let after_ms = self.expected_ms(next_ms).unwrap_or(next_ms);
        Duration::from_millis(after_ms.saturating_sub(now_ms)) + self.grace()
    }

    fn grace(&self) -> Duration {
        Duration::from_secs(self.grace_s.into())
    }

    /// The next time of the cron pattern, in UTC.
    fn expected_ms(&self, now_ms: u64) -> Option<u64> {
        let now = Timestamp::from_millisecond(i64::try_from(now_ms).ok()?).ok()?.to_zoned(TimeZone::UTC);
        let next = self.cron.as_ref()?.find_next_occurrence(&now, false).ok()?;
        u64::try_from(next.timestamp().as_millisecond()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2024-01-15T08:00:00Z
    const EIGHT_MS: u64 = 1_705_305_600_000;
    const HOUR_MS: u64 = 3_600_000;

    #[test]
    fn job_with_an_interval_is_due_an_interval_and_its_grace_after_its_last_call() {
        let heartbeat = Heartbeat { cron: None, grace_s: 30 };
        assert_eq!(heartbeat.deadline_ms(Duration::from_secs(60), EIGHT_MS), EIGHT_MS + 90_000);
    }

    #[test]
    fn silence_counts_from_the_last_call() {
        let heartbeat = Heartbeat { cron: None, grace_s: 30 };
        let after = |now_ms, retries| {
            let (health, next_ms) =
                heartbeat.after_silence(Duration::from_secs(60), EIGHT_MS, now_ms, retries);
            (health.failures, health.first_failure_ms, next_ms)
        };
        let (first, second, third) = (EIGHT_MS + 90_000, EIGHT_MS + 180_000, EIGHT_MS + 270_000);
        assert_eq!(after(first - 1, 2), (0, 0, first));
        assert_eq!(after(first, 2), (1, first, second));
        assert_eq!(after(third - 1, 2), (2, first, third));
        assert_eq!(after(third + HOUR_MS, 2), (2, first, third), "due at once");
        assert_eq!(after(first + 1, 0), (1, first, first + 1), "due at once");
    }

    #[test]
    fn job_with_a_cron_pattern_is_due_at_its_next_time() {
        let heartbeat = Heartbeat { cron: Some("0 9 * * *".parse().unwrap()), grace_s: 60 };
        let interval = Duration::from_secs(60);
        assert_eq!(heartbeat.deadline_ms(interval, EIGHT_MS), EIGHT_MS + HOUR_MS + 60_000);
        let nine = EIGHT_MS + HOUR_MS;
        assert_eq!(heartbeat.deadline_ms(interval, nine), nine + 24 * HOUR_MS + 60_000);
    }
}
