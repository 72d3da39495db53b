//! Reads rate limit information from responses: how long the API refuses calls, how many it has counted.

use std::time::Duration;

use hob_store::limit::Window;
use http::{HeaderMap, StatusCode, header};

use super::Limits;

/// Block time after a 429 without a time.
const DEFAULT_BLOCK: Duration = Duration::from_secs(30);
/// Maximum block time.
const MAX_BLOCK: Duration = Duration::from_secs(7 * 86_400);
/// A larger reset is a Unix time, not a number of seconds.
const MAX_RESET_SECONDS: u64 = 366 * 86_400;
/// A larger Unix time is in milliseconds.
const MAX_UNIX_SECONDS: u64 = 100_000_000_000;

/// What a response says about the quota. Includes calls of other clients with the same credential.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaFeedback {
    /// How long the API refuses calls.
    pub blocked_for: Option<Duration>,
    /// How many calls the API has counted in a window, and the length of the window.
    pub counted: Option<(u32, Duration)>,
}

/// What the headers say about one limit of the API.
#[derive(Clone, Copy, Debug, Default)]
struct RateLimit {
    limit: Option<u32>,
    remaining: Option<u32>,
    /// Time until calls are allowed again.
    reset: Option<Duration>,
}

impl QuotaFeedback {
    /// Reads `Retry-After`, and the `RateLimit` headers in their old and new forms. Times in headers are compared with the
    /// `Date` of the response, or else with `now`.
    pub fn from_response(
        status: StatusCode,
        headers: &HeaderMap,
        limits: &Limits,
        now: jiff::Timestamp,
    ) -> Self {
        let now = text(headers, header::DATE.as_str()).and_then(date).unwrap_or(now);
        let rate_limits = rate_limits(headers, now);
        // An API that has no calls left refuses the next one, whichever limit that is.
        let exhausted = rate_limits.iter().filter(|limit| limit.remaining == Some(0));
        let exhausted = exhausted.filter_map(|limit| limit.reset).max();
        let retry_after = text(headers, header::RETRY_AFTER.as_str()).and_then(|value| wait(value, now));
        let refused = match status {
            StatusCode::TOO_MANY_REQUESTS => Some(retry_after.or(exhausted).unwrap_or(DEFAULT_BLOCK)),
            // Some APIs answer 403 to a client that has no calls left.
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::FORBIDDEN => retry_after,
            _ => None,
        };
        let blocked_for = refused.or(exhausted).map(|wait| wait.clamp(Duration::from_secs(1), MAX_BLOCK));
        let counted = rate_limits.iter().filter_map(|of| of.counted(limits));
        Self { blocked_for, counted: counted.max_by_key(|(_, period)| *period) }
    }
}

impl RateLimit {
    /// How many calls the API has counted, and in which window.
    fn counted(&self, limits: &Limits) -> Option<(u32, Duration)> {
        let window = self.window(limits)?;
        Some((window.limit.checked_sub(self.remaining?)?, window.period))
    }

    /// The window of the quota: the one with this limit, or else the shortest that is at least `reset` long.
    fn window<'a>(&self, limits: &'a Limits) -> Option<&'a Window> {
        match (self.limit, self.reset) {
            (Some(limit), _) => limits.windows().iter().find(|window| window.limit == limit),
            (None, Some(reset)) => limits.windows().iter().find(|window| window.period >= reset),
            (None, None) => None,
        }
    }
}

/// All limits in the headers.
fn rate_limits(headers: &HeaderMap, now: jiff::Timestamp) -> Vec<RateLimit> {
    let reset = |value: u64| reset(value, now);
    // RateLimit: "burst";r=5;t=3, "day";r=50;t=3600, and with it RateLimit-Policy: "burst";q=10;w=5, "day";q=100;w=86400
    if let Some(value) = text(headers, "ratelimit").filter(|value| value.contains(";r=")) {
        let policies = text(headers, "ratelimit-policy").unwrap_or_default();
        let read = |item: &str| {
            let name = item.split(';').next().unwrap_or_default().trim();
            let policy = policies.split(',').find(|policy| policy.trim().split(';').next() == Some(name));
            RateLimit {
                limit: policy.and_then(|policy| parameter(policy, "q")),
                remaining: parameter(item, "r"),
                reset: parameter(item, "t").map(reset),
            }
        };
        return value.split(',').map(read).collect();
    }
    // RateLimit: limit=100, remaining=50, reset=30
    if let Some(value) = text(headers, "ratelimit").filter(|value| value.contains("remaining=")) {
        let limit = parameter(value, "limit");
        let remaining = parameter(value, "remaining");
        return vec![RateLimit { limit, remaining, reset: parameter(value, "reset").map(reset) }];
    }
    let number = |name: &str| {
        let forms = ["ratelimit-", "x-ratelimit-", "x-rate-limit-"];
        let value = forms.iter().find_map(|form| text(headers, &format!("{form}{name}")))?;
        let value = value.split([',', ';']).next()?.trim();
        // Some APIs send fractions of a second.
        value.split('.').next()?.parse::<u64>().ok()
    };
    let small = |name: &str| number(name).and_then(|value| u32::try_from(value).ok());
    let (limit, remaining) = (small("limit"), small("remaining"));
    vec![RateLimit { limit, remaining, reset: number("reset").map(reset) }]
}

/// A reset is a number of seconds, or a Unix time in seconds or milliseconds.
fn reset(value: u64, now: jiff::Timestamp) -> Duration {
    if value <= MAX_RESET_SECONDS {
        return Duration::from_secs(value);
    }
    let unix_ms = if value > MAX_UNIX_SECONDS { value } else { value * 1000 };
    let now_ms = u64::try_from(now.as_millisecond()).unwrap_or(0);
    Duration::from_millis(unix_ms.saturating_sub(now_ms))
}

fn parameter<T: std::str::FromStr>(value: &str, name: &str) -> Option<T> {
    value.split([';', ',']).find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

/// Parses seconds or a date.
fn wait(value: &str, now: jiff::Timestamp) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    Some(Duration::try_from(date(value)?.duration_since(now)).unwrap_or_default())
}

fn date(value: &str) -> Option<jiff::Timestamp> {
    jiff::fmt::rfc2822::parse(value.trim()).ok().map(|date| date.timestamp())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feedback(status: u16, pairs: &[(&'static str, &'static str)]) -> QuotaFeedback {
        let headers =
            pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let limits = Limits::parse("5/1m, 5000/1h", 0).unwrap();
        let now = "2026-11-15T08:00:00Z".parse().unwrap();
        QuotaFeedback::from_response(StatusCode::from_u16(status).unwrap(), &headers, &limits, now)
    }

    const HOUR: Duration = Duration::from_secs(3600);

    fn seconds(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    #[test]
    fn refusal_has_a_duration() {
        let blocked = |pairs| feedback(429, pairs).blocked_for;
        assert_eq!(blocked(&[("retry-after", "17")]), seconds(17));
        assert_eq!(blocked(&[("retry-after", "999999999999")]), Some(MAX_BLOCK));
        assert_eq!(blocked(&[]), Some(DEFAULT_BLOCK));
        assert_eq!(feedback(200, &[("retry-after", "17")]).blocked_for, None);
        assert_eq!(feedback(503, &[("retry-after", "5")]).blocked_for, seconds(5));
        assert_eq!(feedback(403, &[("retry-after", "5")]).blocked_for, seconds(5));
        assert_eq!(feedback(403, &[]).blocked_for, None);
    }

    /// The clock of the API may differ from ours.
    #[test]
    fn dates_are_compared_with_the_date_of_the_response() {
        let blocked = |pairs: &[_]| feedback(429, pairs).blocked_for;
        let until = ("retry-after", "Sun, 15 Nov 2026 08:01:00 GMT");
        assert_eq!(blocked(&[until]), seconds(60));
        assert_eq!(blocked(&[until, ("date", "Sun, 15 Nov 2026 08:00:55 GMT")]), seconds(5));
        let (none_left, at) = (("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1794729660"));
        assert_eq!(blocked(&[none_left, at]), seconds(60));
        assert_eq!(blocked(&[none_left, at, ("date", "Sun, 15 Nov 2026 08:00:40 GMT")]), seconds(20));
        assert_eq!(blocked(&[none_left, ("x-ratelimit-reset", "1794729660000")]), seconds(60));
    }

    /// The limit need not be one of the quota.
    #[test]
    fn no_remaining_calls_block_until_the_reset() {
        for pairs in [
            &[("ratelimit-limit", "77"), ("ratelimit-remaining", "0"), ("ratelimit-reset", "3")][..],
            &[("x-ratelimit-limit", "77"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "3")],
            &[("x-rate-limit-remaining", "0"), ("x-rate-limit-reset", "3")],
            &[("ratelimit", "limit=77, remaining=0, reset=3")],
            &[("ratelimit", "\"burst\";r=0;t=3, \"day\";r=40;t=80000")],
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1794729603")],
        ] {
            assert_eq!(feedback(200, pairs).blocked_for, seconds(3), "{pairs:?}");
            assert_eq!(feedback(429, pairs).blocked_for, seconds(3), "{pairs:?}");
        }
        assert_eq!(feedback(200, &[("ratelimit-remaining", "0")]).blocked_for, None);
    }

    #[test]
    fn all_header_forms_are_read() {
        let old =
            [("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "4000"), ("x-ratelimit-reset", "1800")];
        assert_eq!(feedback(200, &old).counted, Some((1000, HOUR)));
        let draft = [("ratelimit-remaining", "4999"), ("ratelimit-reset", "1800")];
        assert_eq!(feedback(200, &draft).counted, Some((1, HOUR)));
        let one_header = [("ratelimit", "limit=5000, remaining=4990, reset=1800")];
        assert_eq!(feedback(200, &one_header).counted, Some((10, HOUR)));
        let new = [("ratelimit", "\"default\";r=2;t=30"), ("ratelimit-policy", "\"default\";q=5;w=60")];
        assert_eq!(feedback(200, &new).counted, Some((3, Duration::from_secs(60))));
    }

    #[test]
    fn unusable_headers_are_ignored() {
        for pairs in [
            &[("x-ratelimit-remaining", "many")][..],
            &[("x-ratelimit-remaining", "7")],
            &[("x-ratelimit-limit", "77"), ("x-ratelimit-remaining", "7")],
            &[("x-ratelimit-limit", "5"), ("x-ratelimit-remaining", "7")],
        ] {
            assert_eq!(feedback(200, pairs), QuotaFeedback::default(), "{pairs:?}");
        }
    }
}
