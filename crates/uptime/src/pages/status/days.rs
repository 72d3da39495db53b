//! A bar for each of the past 90 days.

use std::fmt::Write as _;

use hob_database::UnixMs;
use hob_web::components::{Escaped, Markup};
use jiff::ToSpan as _;

use super::public::PublicStatus;
use super::reader::Reader;
use crate::monitor::Monitor;
use crate::monitor::history::{DAY_MS, Period};

const DAYS: i64 = 90;

/// The days of the reader's time zone, the oldest first.
pub(super) struct Days {
    /// Name, start and end of each day.
    days: Vec<(String, i64, i64)>,
}

impl Days {
    pub(super) fn new(now: UnixMs, reader: &Reader) -> Self {
        let today = reader.zone.date(now);
        let day = |ago: i64| {
            let date = today.checked_sub(ago.days()).unwrap_or(today);
            let next = date.tomorrow().unwrap_or(date);
            let (start, end) = (reader.zone.start_of(date).0, reader.zone.start_of(next).0);
            (reader.language.short_date(date), start, end.min(now.0))
        };
        Self { days: (0..DAYS).rev().map(day).collect() }
    }

    /// The bars of a system, and a line for each day with downtime. The shape of a bar says the same as its colour.
    pub(super) fn of(
        &self,
        status: &PublicStatus,
        monitor: &Monitor,
        reader: &Reader,
    ) -> (Markup, Vec<String>) {
        let (language, words) = (reader.language, reader.language.words());
        let uptime = language.percent(status.downtime.uptime(monitor, Period::Quarter));
        let mut html = format!(
            r#"<div class="days" role="img" aria-label="{}, {}: {uptime}">"#,
            Escaped(&monitor.spec.name),
            words.last_90_days
        );
        let mut outages = Vec::new();
        for (date, start, end) in &self.days {
            let from = (*start).max(monitor.created_at.0);
            if *end <= from {
                let _ = write!(html, r#"<i class=n data-d="{date}: {}"></i>"#, words.not_monitored);
                continue;
            }
            let down_ms = status.downtime.down_ms(&monitor.id, from, *end);
            let percent = language.percent(100.0 * (1.0 - down_ms as f64 / (end - from) as f64).max(0.0));
            if down_ms == 0 {
                let _ = write!(html, r#"<i data-d="{date}: {percent}"></i>"#);
                continue;
            }
            let class = if down_ms < DAY_MS / 100 { 'w' } else { 'b' };
            let line = format!("{date}: {percent}, {} {}", words.down, language.duration(down_ms));
            let _ = write!(html, r#"<i class={class} data-d="{line}"></i>"#);
            outages.push(line);
        }
        html.push_str("</div>");
        outages.reverse();
        (Markup::trusted(html), outages)
    }
}
