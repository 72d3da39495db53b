//! Rate limit headers: `RateLimit`, `RateLimit-Policy` (draft 11), `Retry-After`, and optionally the older
//! `X-RateLimit-*`.

use std::time::Duration;

use hob_store::limit::{Decision, Quota, Window};
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};

use crate::limiter::Verdict;
use crate::limiter::rule::{Rule, RuleName};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The rate limit headers of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimitHeaders {
    pub policy: HeaderValue,
    pub limit: Option<HeaderValue>,
    pub quota: Option<Quota>,
    /// Whole seconds, at least one.
    pub retry_after_s: Option<u64>,
}

/// The policy that a rule advertises in every response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdvertisedPolicy {
    /// `"api-1s";q=20;w=1, "api-1m";q=500;w=60`
    policy: HeaderValue,
    /// The name of each window.
    names: Vec<String>,
}

impl AdvertisedPolicy {
    pub(crate) fn new(name: &RuleName, windows: &[Window]) -> Self {
        let called = |window: &Window| match windows {
            [_] => name.to_string(),
            _ => {
                let period = Window { burst: None, ..*window }.to_string();
                format!("{name}-{}", period.split_once('/').map_or("", |(_, period)| period))
            }
        };
        let names: Vec<String> = windows.iter().map(called).collect();
        let policy = |(window, name): (&Window, &String)| {
            format!("\"{name}\";q={};w={}", window.limit, whole_seconds(window.period))
        };
        let policies: Vec<String> = windows.iter().zip(&names).map(policy).collect();
        let policy = HeaderValue::try_from(policies.join(", ")).expect("rule names are valid in headers");
        Self { policy, names }
    }
}

impl RateLimitHeaders {
    /// The headers for a decision.
    #[must_use]
    pub fn new(rule: &Rule, verdict: &Verdict) -> Self {
        let (quota, retry_after) = match verdict {
            Verdict::Decided(Decision::Allowed(quota)) => (Some(*quota), None),
            Verdict::Decided(Decision::Denied { quota, retry_after }) => (Some(*quota), Some(*retry_after)),
            Verdict::Unlimited => (None, None),
            Verdict::Unavailable { retry_after } => (None, Some(*retry_after)),
        };
        let limit = quota.and_then(|quota| {
            let name = rule.advertised.names.get(reported_window(rule, quota))?;
            let (left, reset_s) = (quota.remaining, whole_seconds(quota.reset_after));
            HeaderValue::try_from(format!("\"{name}\";r={left};t={reset_s}")).ok()
        });
        let retry_after_s = retry_after.map(|after| whole_seconds(after).max(1));
        Self { policy: rule.advertised.policy.clone(), limit, quota, retry_after_s }
    }

    pub fn write(&self, headers: &mut HeaderMap, x_ratelimit: XRateLimit) {
        headers.insert(RATELIMIT_POLICY, self.policy.clone());
        if let Some(limit) = &self.limit {
            headers.insert(RATELIMIT, limit.clone());
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if let (XRateLimit::Sent, Some(quota)) = (x_ratelimit, self.quota) {
            headers.insert(X_LIMIT, quota.limit.into());
            headers.insert(X_REMAINING, quota.remaining.into());
            headers.insert(X_RESET, whole_seconds(quota.reset_after).into());
        }
    }
}

/// Whether the older headers are sent too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XRateLimit {
    Sent,
    Omitted,
}

/// Rounded up, so that a client that waits this long is allowed.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// The window that a quota belongs to. The quota has the limit that the store applies.
fn reported_window(rule: &Rule, quota: Quota) -> usize {
    let stored = rule.stored_limit();
    let is_reported = |window: &Window| window.max_at_once(stored.algorithm()) == quota.limit;
    stored.windows().iter().position(is_reported).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(toml: &str) -> Rule {
        Rule::new(&toml::from_str(toml).unwrap()).unwrap()
    }

    fn quota(limit: u32, remaining: u32, reset_ms: u64) -> Quota {
        Quota { limit, remaining, reset_after: Duration::from_millis(reset_ms) }
    }

    #[test]
    fn refused_client_gets_retry_after() {
        let rule = rule("name = \"api\"\nwindows = \"20/1s, 500/1m burst 50\"");
        let retry_after = Duration::from_millis(2100);
        let denied = Verdict::Decided(Decision::Denied { quota: quota(50, 0, 5900), retry_after });
        let mut headers = HeaderMap::new();
        RateLimitHeaders::new(&rule, &denied).write(&mut headers, XRateLimit::Sent);
        assert_eq!(headers["ratelimit-policy"], "\"api-1s\";q=20;w=1, \"api-1m\";q=500;w=60");
        assert_eq!(headers["ratelimit"], "\"api-1m\";r=0;t=6");
        assert_eq!(headers["retry-after"], "3");
        assert_eq!(headers["x-ratelimit-limit"], "50");
        assert_eq!(headers["x-ratelimit-remaining"], "0");
        assert_eq!(headers["x-ratelimit-reset"], "6");
    }

    #[test]
    fn allowed_client_gets_remaining_quota() {
        let rule = rule("name = \"api\"\nwindows = \"20/1s\"");
        let allowed = Verdict::Decided(Decision::Allowed(quota(20, 7, 650)));
        let mut headers = HeaderMap::new();
        RateLimitHeaders::new(&rule, &allowed).write(&mut headers, XRateLimit::Omitted);
        assert_eq!(headers["ratelimit"], "\"api\";r=7;t=1");
        assert!(!headers.contains_key("retry-after") && !headers.contains_key("x-ratelimit-limit"));
    }

    #[test]
    fn unknown_quota_is_not_reported() {
        let rule = rule("name = \"api\"\nwindows = \"20/1s\"");
        let headers = RateLimitHeaders::new(&rule, &Verdict::Unlimited);
        assert_eq!((headers.limit, headers.retry_after_s), (None, None));
    }
}
