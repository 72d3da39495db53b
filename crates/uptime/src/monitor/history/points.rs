//! A monitor's history as a series of points, each an hour or a day.

use hob_database::{Read, UnixMs};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::summary::{Summary, summarize_results};
use super::{DAY_MS, HOUR_MS, Span};
use crate::database::summaries;
use crate::error::Result;
use crate::keys::MonitorId;

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

/// The results of an hour or a day.
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

    fn span(self) -> Span {
        match self {
            Self::Day | Self::Week => Span::Hour,
            Self::Month | Self::Quarter => Span::Day,
        }
    }
}

/// A monitor's history over a period. What is not summarized yet comes from the single results.
pub async fn points(on: &impl Read, monitor: &MonitorId, period: Period, now: UnixMs) -> Result<Points> {
    let span = period.span();
    let from = span.start_of(now.0 - period.length_ms());
    let mut parts = summaries::between(on, monitor, span, from, i64::MAX).await?;
    let summarized_until = parts.last().map_or(from, |last| last.start_ms + span.length_ms());
    parts.extend(not_summarized(on, monitor, span, summarized_until, now).await?);
    let mut whole = Summary { start_ms: from, ..Summary::default() };
    for part in &parts {
        whole.merge(part);
    }
    Ok(Points { points: parts.iter().map(Point::new).collect(), whole: Point::new(&whole) })
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
