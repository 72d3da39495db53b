//! The time range of a page's charts, kept in the query: `?range=24h`, or `?from=2026-11-01T00:00&to=2026-11-02T00:00`.

use std::fmt::Write;

use hob_units::unix_ms;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::Deserialize;

use crate::Problem;
use crate::components::{Escaped, Markup, link, timestamp};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
/// The shortest range that a user may enter.
const MIN_MS: u64 = MINUTE_MS;
/// As `<input type="datetime-local">` sends a time.
const INPUT_FORMAT: &str = "%Y-%m-%dT%H:%M";

/// A length of time up to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    Hour,
    Day,
    Week,
    Month,
    Quarter,
}

impl Span {
    #[must_use]
    pub fn length_ms(self) -> u64 {
        match self {
            Self::Hour => HOUR_MS,
            Self::Day => DAY_MS,
            Self::Week => 7 * DAY_MS,
            Self::Month => 30 * DAY_MS,
            Self::Quarter => 90 * DAY_MS,
        }
    }
}

// As the query names it.
hob_units::names!(Span { Hour = "1h", Day = "24h", Week = "7d", Month = "30d", Quarter = "90d" });

/// The part of a page's query that selects a range.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct RangeQuery {
    range: Option<String>,
    /// In UTC.
    from: Option<String>,
    to: Option<String>,
}

/// The range that a page shows, and those that it offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeRange {
    pub from_ms: u64,
    pub to_ms: u64,
    /// `None` for a range that the user has entered.
    pub span: Option<Span>,
    offered: &'static [Span],
}

impl RangeQuery {
    /// The selected range. A range that the user enters is within the longest one that is offered.
    pub fn resolve(&self, offered: &'static [Span], default: Span) -> Result<TimeRange, Problem> {
        self.resolve_at(offered, default, unix_ms())
    }

    fn resolve_at(&self, offered: &'static [Span], default: Span, now_ms: u64) -> Result<TimeRange, Problem> {
        let (from, to) = (self.from.as_deref().unwrap_or(""), self.to.as_deref().unwrap_or(""));
        if !from.is_empty() || !to.is_empty() {
            let longest = offered.iter().map(|span| span.length_ms()).max().unwrap_or(DAY_MS);
            let from_ms = parse("from", from)?.max(now_ms.saturating_sub(longest));
            let to_ms = if to.is_empty() { now_ms } else { parse("to", to)?.min(now_ms) };
            if to_ms < from_ms + MIN_MS {
                let problem =
                    "the end must be at least a minute after the start, and data must exist for the range";
                return Err(Problem::invalid("to", problem));
            }
            return Ok(TimeRange { from_ms, to_ms, span: None, offered });
        }
        let span = match self.range.as_deref() {
            None | Some("") => default,
            Some(word) => offered.iter().copied().find(|span| span.as_str() == word).ok_or_else(|| {
                let words: Vec<&str> = offered.iter().map(|span| span.as_str()).collect();
                Problem::invalid("range", format!("must be one of {}", words.join(", ")))
            })?,
        };
        let from_ms = now_ms.saturating_sub(span.length_ms());
        Ok(TimeRange { from_ms, to_ms: now_ms, span: Some(span), offered })
    }
}

fn parse(field: &'static str, text: &str) -> Result<u64, Problem> {
    let time = DateTime::strptime(INPUT_FORMAT, text)
        .ok()
        .and_then(|time| time.to_zoned(TimeZone::UTC).ok())
        .and_then(|time| u64::try_from(time.timestamp().as_millisecond()).ok());
    time.ok_or_else(|| Problem::invalid(field, "must be a time in UTC such as 2026-11-01T18:30"))
}

impl TimeRange {
    #[must_use]
    pub fn length_ms(&self) -> u64 {
        self.to_ms - self.from_ms
    }

    #[must_use]
    pub fn range(&self) -> std::ops::Range<u64> {
        self.from_ms..self.to_ms
    }

    /// `24h`, or both ends.
    #[must_use]
    pub fn words(&self) -> String {
        match self.span {
            Some(span) => format!("last {}", span.as_str()),
            None => {
                let time = |at_ms| self.input(at_ms).replace('T', " ");
                format!("{} to {} UTC", time(self.from_ms), time(self.to_ms))
            }
        }
    }

    /// The fields of the query that select this range.
    #[must_use]
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        match self.span {
            Some(span) => vec![("range", span.as_str().to_owned())],
            None => vec![("from", self.input(self.from_ms)), ("to", self.input(self.to_ms))],
        }
    }

    fn input(&self, at_ms: u64) -> String {
        timestamp(at_ms).strftime(INPUT_FORMAT).to_string()
    }

    /// Links to the ranges that the page offers, and a form for another one. `kept` are the other fields of the page's query.
    #[must_use]
    pub fn picker(&self, path: &str, kept: &[(&str, &str)]) -> Markup {
        let mut html = String::from(r#"<nav class="row ranges" aria-label="Time range">"#);
        for span in self.offered {
            let fields: Vec<(&str, &str)> = kept.iter().copied().chain([("range", span.as_str())]).collect();
            let current = if self.span == Some(*span) { r#" aria-current="page""# } else { "" };
            let href = Escaped(link(path, &fields));
            let _ = write!(html, r#"<a class="button small" href="{href}"{current}>{}</a>"#, span.as_str());
        }
        let current = if self.span.is_none() { r#" class="custom here""# } else { r#" class="custom""# };
        let path = Escaped(path);
        let _ = write!(
            html,
            r#"<details{current}><summary class="button small">Custom</summary><form method="get" action="{path}" class="form inline">"#
        );
        for (name, value) in kept {
            let (name, value) = (Escaped(name), Escaped(value));
            let _ = write!(html, r#"<input type="hidden" name="{name}" value="{value}">"#);
        }
        for (name, label, at_ms) in [("from", "From (UTC)", self.from_ms), ("to", "To (UTC)", self.to_ms)] {
            let value = self.input(at_ms);
            let _ = write!(
                html,
                r#"<div class="field"><label for="range-{name}">{label}</label><input id="range-{name}" name="{name}" type="datetime-local" required value="{value}"></div>"#
            );
        }
        html.push_str("<button>Show</button></form></details></nav>");
        Markup::trusted(html)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u64 = 1_763_208_000_000;
    const OFFERED: &[Span] = &[Span::Hour, Span::Day, Span::Month];

    fn query(range: Option<&str>, from: Option<&str>, to: Option<&str>) -> RangeQuery {
        let text = |text: Option<&str>| text.map(str::to_owned);
        RangeQuery { range: text(range), from: text(from), to: text(to) }
    }

    #[test]
    fn range_is_taken_from_the_query() {
        let range = query(None, None, None).resolve_at(OFFERED, Span::Day, NOON).unwrap();
        assert_eq!((range.span, range.from_ms, range.to_ms), (Some(Span::Day), NOON - DAY_MS, NOON));
        let hour = query(Some("1h"), None, None).resolve_at(OFFERED, Span::Day, NOON).unwrap();
        assert_eq!((hour.span, hour.length_ms()), (Some(Span::Hour), HOUR_MS));
    }

    #[test]
    fn entered_range_is_limited_to_what_exists() {
        let range = query(None, Some("2025-11-14T12:00"), Some("2099-01-01T00:00"));
        let range = range.resolve_at(OFFERED, Span::Day, NOON).unwrap();
        assert_eq!((range.span, range.from_ms, range.to_ms), (None, NOON - DAY_MS, NOON));
        let old = query(None, Some("2001-01-01T00:00"), None).resolve_at(OFFERED, Span::Day, NOON).unwrap();
        assert_eq!(old.length_ms(), Span::Month.length_ms());
        let html = range.picker("/a", &[("q", "x&y")]).to_string();
        assert!(html.contains(r#"value="2025-11-14T12:00""#) && html.contains("q=x%26y"), "{html}");
        assert_eq!(range.words(), "2025-11-14 12:00 to 2025-11-15 12:00 UTC");
        let fields = range.fields().into_iter().map(|(_, value)| value);
        assert_eq!(fields.collect::<Vec<_>>(), ["2025-11-14T12:00", "2025-11-15T12:00"]);
    }

    #[test]
    fn bad_range_is_refused() {
        for bad in [
            query(Some("7d"), None, None),
            query(None, Some("yesterday"), None),
            query(None, Some("2025-11-15T12:00"), Some("2025-11-14T12:00")),
            query(None, None, Some("2025-11-14T12:00")),
        ] {
            assert!(bad.resolve_at(OFFERED, Span::Day, NOON).is_err(), "{bad:?}");
        }
    }
}
