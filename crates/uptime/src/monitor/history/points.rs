//! A monitor's history as a series of points, each some minutes, an hour or a day.

use std::ops::Range;

use hob_database::{Read, UnixMs};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::summary::{Summary, summarize_results};
use super::{DAY_MS, HOUR_MS, Span};
use crate::database::{results, summaries};
use crate::error::Result;
use crate::keys::MonitorId;

const MINUTE_MS: i64 = 60_000;
/// A range of up to this length is shown by the minute, and a longer one by the hour.
const MAX_MINUTES_MS: i64 = 6 * HOUR_MS;
/// A longer range is shown by the day.
const MAX_HOURS_MS: i64 = 8 * DAY_MS;
/// Points of a range that is shown by the minute.
const MAX_POINTS: i64 = 120;

/// The time that a history covers, up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = HistoryPeriod)]
pub enum Period {
    #[default]
    #[serde(rename = "24h")]
    Day,
    #[serde(rename = "7d")]
    Week,
    #[serde(rename = "30d")]
    Month,
    #[serde(rename = "90d")]
    Quarter,
}

/// The results of some minutes, an hour or a day.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = HistoryPoint)]
pub struct Point {
    /// Unix milliseconds.
    pub start_ms: i64,
    /// Checks that succeeded.
    pub good: u64,
    /// Checks that failed.
    pub bad: u64,
    /// Median latency of the successes, in milliseconds.
    pub p50_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    pub p99_ms: Option<f64>,
}

/// The points in order, and all of them together.
#[derive(Clone, Debug)]
pub struct Points {
    pub points: Vec<Point>,
    pub whole: Point,
    /// The time between two points.
    pub step_ms: i64,
}

hob_units::names!(Period { Day = "24h", Week = "7d", Month = "30d", Quarter = "90d" });

impl Period {
    #[must_use]
    pub fn length_ms(self) -> i64 {
        match self {
            Self::Day => DAY_MS,
            Self::Week => 7 * DAY_MS,
            Self::Month => 30 * DAY_MS,
            Self::Quarter => 90 * DAY_MS,
        }
    }
}

/// A monitor's history over a period, in hours or days.
pub async fn points(on: &impl Read, monitor: &MonitorId, period: Period, now: UnixMs) -> Result<Points> {
    points_between(on, monitor, now.0 - period.length_ms()..now.0, now).await
}

/// A monitor's history over a range: in minutes if it is short, otherwise in hours or days. What is not summarized yet comes
/// from the single results.
pub async fn points_between(
    on: &impl Read,
    monitor: &MonitorId,
    range: Range<i64>,
    now: UnixMs,
) -> Result<Points> {
    let length = range.end - range.start;
    if length <= MAX_MINUTES_MS {
        return minutes(on, monitor, range).await;
    }
    let span = if length <= MAX_HOURS_MS { Span::Hour } else { Span::Day };
    let from = span.start_of(range.start);
    let mut parts = summaries::between(on, monitor, span, from, range.end).await?;
    let summarized_until = parts.last().map_or(from, |last| last.start_ms + span.length_ms());
    parts.extend(not_summarized(on, monitor, span, summarized_until, now).await?);
    parts.retain(|part| part.start_ms < range.end);
    Ok(Points::new(from, span.length_ms(), &parts))
}

/// The single results of a range, by the minute, or by several minutes in a longer range.
async fn minutes(on: &impl Read, monitor: &MonitorId, range: Range<i64>) -> Result<Points> {
    let step = ((range.end - range.start) / MAX_POINTS / MINUTE_MS).max(1) * MINUTE_MS;
    let from = range.start - range.start.rem_euclid(step);
    let mut parts: Vec<Summary> = Vec::new();
    for (at, latency_us, good) in results::timed(on, monitor, from, range.end).await? {
        let start_ms = at - at.rem_euclid(step);
        if parts.last().is_none_or(|part| part.start_ms != start_ms) {
            parts.push(Summary { start_ms, ..Summary::default() });
        }
        if let Some(part) = parts.last_mut() {
            part.add(latency_us, good);
        }
    }
    Ok(Points::new(from, step, &parts))
}

impl Points {
    fn new(from: i64, step_ms: i64, parts: &[Summary]) -> Self {
        let mut whole = Summary { start_ms: from, ..Summary::default() };
        for part in parts {
            whole.merge(part);
        }
        Self { points: parts.iter().map(Point::new).collect(), whole: Point::new(&whole), step_ms }
    }
}

/// The hours or days after the last summary, at most two.
async fn not_summarized(
    on: &impl Read,
    monitor: &MonitorId,
    span: Span,
    summarized_until: i64,
    now: UnixMs,
) -> Result<Vec<Summary>> {
    let current = span.start_of(now.0);
    let mut start = summarized_until.max(current - span.length_ms());
    let mut parts = Vec::new();
    while start <= current {
        let mut part = Summary { start_ms: start, ..Summary::default() };
        let end = (start + span.length_ms()).min(now.0 + 1);
        // A day of checks every second is more rows than one query may return, so it is read by the hour.
        let mut hour = start;
        while hour < end {
            part.merge(&summarize_results(on, monitor, hour, (hour + HOUR_MS).min(end)).await?);
            hour += HOUR_MS;
        }
        if !part.is_empty() {
            parts.push(part);
        }
        start += span.length_ms();
    }
    Ok(parts)
}

impl Point {
    fn new(summary: &Summary) -> Self {
        let ms =
            |quantile| summary.latencies.quantile(quantile).map(|bucket| bucket.middle() as f64 / 1000.0);
        Self {
            start_ms: summary.start_ms,
            good: summary.good,
            bad: summary.bad,
            p50_ms: ms(0.5),
            p95_ms: ms(0.95),
            p99_ms: ms(0.99),
        }
    }
}
