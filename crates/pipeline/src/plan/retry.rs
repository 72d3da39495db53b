//! What went wrong with an item, and whether it is tried again.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hob_service::Period;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// No answer: refused, cut off, too slow, too long.
    Network,
    /// 5xx.
    Server,
    /// 429.
    Throttled,
    /// 4xx.
    Client,
    /// An answer that is not what the plan says.
    Parse,
}

/// How often and how soon a failed item is tried again, by class.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retries {
    network: Backoff,
    server: Backoff,
    throttled: Backoff,
    client: Backoff,
    parse: Backoff,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Backoff {
    /// How many attempts there are in all.
    attempts: u32,
    #[serde(default = "second")]
    first: Period,
    #[serde(default = "quarter_hour")]
    most: Period,
}

/// What becomes of an item that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Again {
        after: Duration,
    },
    /// Set aside until somebody replays it.
    Quarantine,
}

impl Retries {
    /// `chance` between 0 and 1 spreads the retries of items that failed together.
    pub(crate) fn judge(&self, class: Class, attempts: u32, chance: f64) -> Verdict {
        let backoff = match class {
            Class::Network => self.network,
            Class::Server => self.server,
            Class::Throttled => self.throttled,
            Class::Client => self.client,
            Class::Parse => self.parse,
        };
        if attempts >= backoff.attempts {
            return Verdict::Quarantine;
        }
        let doubled = backoff.first.get().saturating_mul(1 << attempts.saturating_sub(1).min(20));
        Verdict::Again { after: doubled.min(backoff.most.get()).mul_f64(0.75 + 0.5 * chance) }
    }
}

impl Default for Retries {
    fn default() -> Self {
        let backoff = |attempts| Backoff { attempts, first: second(), most: quarter_hour() };
        Self {
            network: backoff(8),
            server: backoff(8),
            // The quota learns from each, so that there should be few; none of them is the item's fault.
            throttled: backoff(50),
            client: backoff(1),
            parse: backoff(3),
        }
    }
}

fn second() -> Period {
    Period::from_secs(1)
}

fn quarter_hour() -> Period {
    Period::from_secs(900)
}

impl Class {
    pub const ALL: [Class; 5] =
        [Class::Network, Class::Server, Class::Throttled, Class::Client, Class::Parse];

    pub fn as_str(self) -> &'static str {
        match self {
            Class::Network => "network",
            Class::Server => "server",
            Class::Throttled => "throttled",
            Class::Client => "client",
            Class::Parse => "parse",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || format!("{text:?} is none of {}", Class::ALL.map(Class::as_str).join(", "));
        Class::ALL.into_iter().find(|class| class.as_str() == text).ok_or_else(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_wait_longer_each_time_up_to_a_bound() {
        let retries = Retries::default();
        let after = |attempts| match retries.judge(Class::Throttled, attempts, 0.5) {
            Verdict::Again { after } => after.as_secs(),
            Verdict::Quarantine => 0,
        };
        assert_eq!([1, 2, 3, 20, 49, 50].map(after), [1, 2, 4, 900, 900, 0]);
    }

    #[test]
    fn what_the_api_calls_wrong_is_not_tried_again() {
        assert_eq!(Retries::default().judge(Class::Client, 1, 0.0), Verdict::Quarantine);
    }
}
