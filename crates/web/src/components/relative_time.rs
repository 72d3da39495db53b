//! Times for people: how long ago, with the exact time on hover.

use std::fmt::{self, Display};

use askama::filters::HtmlSafe;
use hob_units::unix_ms;
use jiff::Timestamp;

use super::Amount;

/// A relative time such as `3 min ago`, with the exact time on hover. live.js keeps it current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelativeTime {
    at_ms: u64,
    now_ms: u64,
}

impl RelativeTime {
    /// A time in Unix milliseconds, relative to the current time.
    #[must_use]
    pub fn at(at_ms: impl Into<Amount>) -> Self {
        Self { at_ms: at_ms.into().0, now_ms: unix_ms() }
    }

    /// Relative to another time, such as the clock of the store.
    #[must_use]
    pub fn relative_to(self, now_ms: u64) -> Self {
        Self { now_ms, ..self }
    }
}

impl Display for RelativeTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = timestamp(self.at_ms);
        let iso = at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ");
        let exact = at.strftime("%Y-%m-%d %H:%M:%S UTC");
        let said = distance(self.at_ms, self.now_ms);
        write!(f, r#"<time datetime="{iso}" title="{exact}" data-ago>{said}</time>"#)
    }
}

impl HtmlSafe for RelativeTime {}

/// `just now`, `12 s ago`, `in 3 min`. live.js uses the same words.
fn distance(at_ms: u64, now_ms: u64) -> String {
    let seconds = at_ms.abs_diff(now_ms) / 1000;
    let length = match seconds {
        0..2 => return "just now".to_owned(),
        2..90 => format!("{seconds}\u{a0}s"),
        90..5_400 => format!("{}\u{a0}min", (seconds + 30) / 60),
        5_400..129_600 => format!("{}\u{a0}h", (seconds + 1_800) / 3_600),
        _ => format!("{}\u{a0}d", (seconds + 43_200) / 86_400),
    };
    if at_ms > now_ms { format!("in {length}") } else { format!("{length} ago") }
}

/// A valid timestamp; times after the year 9999 are clamped.
pub(crate) fn timestamp(at_ms: u64) -> Timestamp {
    i64::try_from(at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u64 = 1_763_208_000_000;

    #[test]
    fn relative_times_have_units() {
        for (ago_ms, text) in [
            (0, "just now"),
            (1_900, "just now"),
            (12_000, "12 s ago"),
            (180_000, "3 min ago"),
            (7_200_000, "2 h ago"),
            (259_200_000, "3 d ago"),
        ] {
            assert_eq!(distance(NOON - ago_ms, NOON).replace('\u{a0}', " "), text);
        }
        assert_eq!(distance(NOON + 60_000, NOON), "in 60\u{a0}s");
    }

    #[test]
    fn exact_time_is_on_hover() {
        let html = RelativeTime::at(NOON).relative_to(NOON + 12_000).to_string();
        assert!(
            html.contains(r#"datetime="2025-11-15T12:00:00.000Z" title="2025-11-15 12:00:00 UTC""#),
            "{html}"
        );
        assert!(html.contains("12\u{a0}s ago"), "{html}");
    }

    #[test]
    fn any_time_can_be_shown() {
        assert!(RelativeTime::at(u64::MAX).to_string().contains("9999-12-"));
    }
}
