//! What a client is told about its limit: `RateLimit`, `RateLimit-Policy` (draft 11), `Retry-After`, and the older
//! `X-RateLimit-*` where wanted.

use std::fmt::Write as _;
use std::time::Duration;

use hob_hot::limit::{Decision, Quota, Window};
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};

use crate::limiter::Verdict;
use crate::rule::Rule;

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Header fields about a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    pub policy: String,
    pub limit: String,
    pub quota: Option<Quota>,
    /// Whole seconds, at least one.
    pub retry_after_s: Option<u64>,
}

impl Fields {
    /// What a rule's verdict says.
    #[must_use]
    pub fn new(rule: &Rule, verdict: &Verdict) -> Self {
        let (quota, retry_after) = match verdict {
            Verdict::Decided(Decision::Allowed(quota)) => (Some(*quota), None),
            Verdict::Decided(Decision::Denied { quota, retry_after }) => (Some(*quota), Some(*retry_after)),
            Verdict::Unlimited => (None, None),
            Verdict::Unknown { retry_after } => (None, Some(*retry_after)),
        };
        let limit = quota.map_or_else(String::new, |quota| {
            let name = told(rule, quota).map_or_else(String::new, |window| policy_name(rule, window));
            format!("\"{name}\";r={};t={}", quota.remaining, whole_seconds(quota.reset_after))
        });
        let retry_after_s = retry_after.map(|after| whole_seconds(after).max(1));
        Self { policy: policy(rule), limit, quota, retry_after_s }
    }

    /// Writes them into a response's headers.
    pub fn write(&self, headers: &mut HeaderMap, x_ratelimit: XRateLimit) {
        let mut set = |name: HeaderName, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text)
                && !text.is_empty()
            {
                headers.insert(name, value);
            }
        };
        set(RATELIMIT_POLICY, &self.policy);
        set(RATELIMIT, &self.limit);
        if let Some(seconds) = self.retry_after_s {
            set(RETRY_AFTER, &seconds.to_string());
        }
        if let (XRateLimit::Sent, Some(quota)) = (x_ratelimit, self.quota) {
            set(X_LIMIT, &quota.limit.to_string());
            set(X_REMAINING, &quota.remaining.to_string());
            set(X_RESET, &whole_seconds(quota.reset_after).to_string());
        }
    }
}

/// Whether the older fields are sent, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XRateLimit {
    Sent,
    Left,
}

/// Rounded up, so that whoever waits that long has waited long enough.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// `"api-1s";q=20;w=1, "api-1m";q=500;w=60`
fn policy(rule: &Rule) -> String {
    let mut text = String::new();
    for window in rule.limit().windows() {
        let gap = if text.is_empty() { "" } else { ", " };
        let (name, seconds) = (policy_name(rule, window), whole_seconds(window.period));
        let _ = write!(text, "{gap}\"{name}\";q={};w={seconds}", window.limit);
    }
    text
}

fn policy_name(rule: &Rule, window: &Window) -> String {
    match rule.limit().windows() {
        [_] => rule.name().to_string(),
        _ => {
            let period = Window { burst: None, ..*window }.to_string();
            format!("{}-{}", rule.name(), period.split_once('/').map_or("", |(_, period)| period))
        }
    }
}

/// The window that a quota is about.
fn told(rule: &Rule, quota: Quota) -> Option<&Window> {
    let (windows, algorithm) = (rule.limit().windows(), rule.limit().algorithm());
    windows.iter().find(|window| window.most_at_once(algorithm) == quota.limit).or(windows.first())
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
    fn a_refused_client_is_told_when_to_come_back() {
        let rule = rule("name = \"api\"\nwindows = \"20/1s, 500/1m burst 50\"");
        let retry_after = Duration::from_millis(2100);
        let denied = Verdict::Decided(Decision::Denied { quota: quota(50, 0, 5900), retry_after });
        let mut headers = HeaderMap::new();
        Fields::new(&rule, &denied).write(&mut headers, XRateLimit::Sent);
        assert_eq!(headers["ratelimit-policy"], "\"api-1s\";q=20;w=1, \"api-1m\";q=500;w=60");
        assert_eq!(headers["ratelimit"], "\"api-1m\";r=0;t=6");
        assert_eq!(headers["retry-after"], "3");
        assert_eq!(headers["x-ratelimit-limit"], "50");
        assert_eq!(headers["x-ratelimit-remaining"], "0");
        assert_eq!(headers["x-ratelimit-reset"], "6");
    }

    #[test]
    fn a_client_that_may_go_on_is_told_what_is_left() {
        let rule = rule("name = \"api\"\nwindows = \"20/1s\"");
        let allowed = Verdict::Decided(Decision::Allowed(quota(20, 7, 650)));
        let mut headers = HeaderMap::new();
        Fields::new(&rule, &allowed).write(&mut headers, XRateLimit::Left);
        assert_eq!(headers["ratelimit"], "\"api\";r=7;t=1");
        assert!(!headers.contains_key("retry-after") && !headers.contains_key("x-ratelimit-limit"));
    }

    #[test]
    fn a_limit_that_nobody_knows_is_not_told() {
        let rule = rule("name = \"api\"\nwindows = \"20/1s\"");
        let fields = Fields::new(&rule, &Verdict::Unlimited);
        assert_eq!((fields.limit.as_str(), fields.retry_after_s), ("", None));
    }
}
