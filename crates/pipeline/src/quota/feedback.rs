//! Reads rate limit information from responses: how long the API refuses calls, how many it has counted.

use std::time::Duration;

use hob_store::limit::Window;
use http::{HeaderMap, StatusCode, header};

use super::Limits;

/// Block time after a 429 without a time.
const DEFAULT_BLOCK: Duration = Duration::from_secs(30);
/// Maximum block time.
const MAX_BLOCK: Duration = Duration::from_secs(7 * 86_400);

/// What a response says about the quota. Includes calls of other clients with the same credential.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaFeedback {
    /// How long the API refuses calls.
    pub blocked_for: Option<Duration>,
    /// How many calls the API has counted in a window, and the length of the window.
    pub counted: Option<(u32, Duration)>,
}

impl QuotaFeedback {
    /// Reads 429 and 503 with `Retry-After`, and the `RateLimit` headers in their old and new forms.
    /// `now` is only used for a `Retry-After` with a date.
    pub fn from_response(
        status: StatusCode,
        headers: &HeaderMap,
        limits: &Limits,
        now: jiff::Timestamp,
    ) -> Self {
        let retry_after = text(headers, header::RETRY_AFTER.as_str()).and_then(|value| wait(value, now));
        let (remaining, reset, limit) = rate_limit(headers);
        let refused = match status {
            StatusCode::TOO_MANY_REQUESTS => {
                Some(retry_after.or(reset.filter(|_| remaining == Some(0))).unwrap_or(DEFAULT_BLOCK))
            }
            StatusCode::SERVICE_UNAVAILABLE => retry_after,
            _ => None,
        };
        let counted = remaining.and_then(|remaining| {
            let window = matching_window(limits, limit, reset)?;
            Some((window.limit.checked_sub(remaining)?, window.period))
        });
        Self { blocked_for: refused.map(|wait| wait.clamp(Duration::from_secs(1), MAX_BLOCK)), counted }
    }
}

/// The window that the headers describe: the one with this limit, or else the shortest that is at least `reset` long.
fn matching_window(limits: &Limits, limit: Option<u32>, reset: Option<Duration>) -> Option<&Window> {
    match (limit, reset) {
        (Some(limit), _) => limits.windows().iter().find(|window| window.limit == limit),
        (None, Some(reset)) => limits.windows().iter().find(|window| window.period >= reset),
        (None, None) => None,
    }
}

/// Remaining calls, time until the reset, limit.
fn rate_limit(headers: &HeaderMap) -> (Option<u32>, Option<Duration>, Option<u32>) {
    let seconds = |value: u32| Duration::from_secs(u64::from(value));
    // RateLimit: "default";r=50;t=30, and with it RateLimit-Policy: "default";q=100;w=60
    if let Some(value) = text(headers, "ratelimit").filter(|value| value.contains(";r=")) {
        let limit = text(headers, "ratelimit-policy").and_then(|policy| parameter(policy, "q"));
        return (parameter(value, "r"), parameter(value, "t").map(seconds), limit);
    }
    let number = |name| {
        let value =
            text(headers, &format!("ratelimit-{name}")).or(text(headers, &format!("x-ratelimit-{name}")))?;
        value.split([',', ';']).next()?.trim().parse::<u64>().ok()
    };
    let small = |value: u64| u32::try_from(value).ok();
    // Some APIs send a Unix time as reset, which is not used.
    let reset = number("reset").and_then(small).filter(|reset| *reset < 366 * 86_400).map(seconds);
    (number("remaining").and_then(small), reset, number("limit").and_then(small))
}

fn parameter(value: &str, name: &str) -> Option<u32> {
    value.split(';').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

/// Parses seconds or a date.
fn wait(value: &str, now: jiff::Timestamp) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(value.trim()).ok()?;
    Some(Duration::try_from(date.timestamp().duration_since(now)).unwrap_or_default())
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

    #[test]
    fn refusal_has_a_duration() {
        let blocked = |pairs| feedback(429, pairs).blocked_for;
        assert_eq!(blocked(&[("retry-after", "17")]), Some(Duration::from_secs(17)));
        assert_eq!(
            blocked(&[("retry-after", "Sun, 15 Nov 2026 08:01:00 GMT")]),
            Some(Duration::from_secs(60))
        );
        assert_eq!(blocked(&[("retry-after", "999999999999")]), Some(MAX_BLOCK));
        assert_eq!(blocked(&[]), Some(DEFAULT_BLOCK));
        assert_eq!(feedback(200, &[("retry-after", "17")]).blocked_for, None);
        assert_eq!(feedback(503, &[("retry-after", "5")]).blocked_for, Some(Duration::from_secs(5)));
    }

    #[test]
    fn all_header_forms_are_read() {
        let old =
            [("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "4000"), ("x-ratelimit-reset", "1800")];
        assert_eq!(feedback(200, &old).counted, Some((1000, HOUR)));
        let draft = [("ratelimit-remaining", "4999"), ("ratelimit-reset", "1800")];
        assert_eq!(feedback(200, &draft).counted, Some((1, HOUR)));
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
