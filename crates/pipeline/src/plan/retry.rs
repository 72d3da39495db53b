//! Failure classes and retries.

use std::time::Duration;

use hob_service::Period;
use hob_units::Backoff;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FailureClass {
    /// No complete response: refused, reset, timed out.
    Network,
    /// 5xx.
    Server,
    /// 429.
    Throttled,
    /// 4xx, or an address that may not be connected to.
    Client,
    /// A response that does not match the plan, or is too long.
    Parse,
}

/// Number and delay of retries, by failure class.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    network: RetryRule,
    server: RetryRule,
    throttled: RetryRule,
    client: RetryRule,
    parse: RetryRule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryRule {
    /// Total number of attempts.
    attempts: u32,
    #[serde(default = "second")]
    first: Period,
    #[serde(default = "quarter_hour")]
    most: Period,
}

/// What happens to an item that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    Retry {
        after: Duration,
    },
    /// The item becomes a dead letter until it is replayed.
    Quarantine,
}

impl RetryPolicy {
    /// `chance`, between 0 and 1, adds jitter to the delay.
    pub(crate) fn decide(&self, class: FailureClass, attempts: u32, chance: f64) -> RetryDecision {
        let rule = match class {
            FailureClass::Network => self.network,
            FailureClass::Server => self.server,
            FailureClass::Throttled => self.throttled,
            FailureClass::Client => self.client,
            FailureClass::Parse => self.parse,
        };
        if attempts >= rule.attempts {
            return RetryDecision::Quarantine;
        }
        let backoff = Backoff::exponential(rule.first.get(), rule.most.get()).with_jitter(0.75..1.25);
        RetryDecision::Retry { after: backoff.delay_after(attempts, chance) }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let rule = |attempts| RetryRule { attempts, first: second(), most: quarter_hour() };
        Self {
            network: rule(8),
            server: rule(8),
            // The quota adapts to each refusal, so there are few; the item is not the cause.
            throttled: rule(50),
            client: rule(1),
            parse: rule(3),
        }
    }
}

fn second() -> Period {
    Period::from_secs(1)
}

fn quarter_hour() -> Period {
    Period::from_secs(900)
}

hob_units::names!(FailureClass {
    Network = "network",
    Server = "server",
    Throttled = "throttled",
    Client = "client",
    Parse = "parse",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delay_doubles_up_to_a_maximum() {
        let retry = RetryPolicy::default();
        let after = |attempts| match retry.decide(FailureClass::Throttled, attempts, 0.5) {
            RetryDecision::Retry { after } => after.as_secs(),
            RetryDecision::Quarantine => 0,
        };
        assert_eq!([1, 2, 3, 20, 49, 50].map(after), [1, 2, 4, 900, 900, 0]);
    }

    #[test]
    fn client_error_is_not_retried() {
        assert_eq!(RetryPolicy::default().decide(FailureClass::Client, 1, 0.0), RetryDecision::Quarantine);
    }
}
