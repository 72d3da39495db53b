//! What history is asked: how available a monitor was, how fast, and what happened last.

use std::collections::HashMap;

use hob_database::{Query, Read, UnixMs, from_row, sql};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::summary::of_results;
use super::{DAY_MS, HOUR_MS, Latencies};
use crate::error::Result;
use crate::incident::{self, Incident};
use crate::keys::MonitorId;
use crate::monitor::Monitor;

/// A length of time that is asked for.
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

/// How a history is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    Hours,
    Days,
}

/// One piece of a history.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = HistoryPoint)]
pub struct Point {
    /// Unix milliseconds.
    pub start_ms: i64,
    pub good: u64,
    pub bad: u64,
    /// Milliseconds that half of the successes took at most.
    pub p50_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    pub p99_ms: Option<f64>,
}

/// The pieces in order, and all of them together.
#[derive(Clone, Debug)]
pub struct Points {
    pub points: Vec<Point>,
    pub whole: Point,
}

/// A single result.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ResultRow {
    /// Unix milliseconds.
    pub at_ms: i64,
    pub state: String,
    pub latency_us: u64,
    pub error: Option<String>,
}

struct Raw {
    at: UnixMs,
    state: String,
    latency_us: u64,
    error: Option<String>,
}

struct SummaryRow {
    start: i64,
    good: u64,
    bad: u64,
    latencies: Vec<u8>,
}

from_row!(Raw { at, state, latency_us, error });
from_row!(SummaryRow { start, good, bad, latencies });

impl Period {
    pub const ALL: [Self; 4] = [Self::Day, Self::Week, Self::Month, Self::Quarter];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Day => "24h",
            Self::Week => "7d",
            Self::Month => "30d",
            Self::Quarter => "90d",
        }
    }

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
            Self::Day | Self::Week => Span::Hours,
            Self::Month | Self::Quarter => Span::Days,
        }
    }
}

/// A monitor's history over a period, in pieces. Of what is not summed up yet, the single results are asked.
pub async fn points(on: &impl Read, monitor: &MonitorId, period: Period, now: UnixMs) -> Result<Points> {
    let from = now.0 - period.length_ms();
    let (span, length) = match period.span() {
        Span::Hours => ("h", HOUR_MS),
        Span::Days => ("d", DAY_MS),
    };
    let from = from - from.rem_euclid(length);
    let rows: Query<SummaryRow> = sql("SELECT start, good, bad, latencies FROM uptime_summary
                                       WHERE monitor_id = $1 AND span = $2 AND start >= $3 ORDER BY start");
    let rows = on.all(rows.bind(monitor).bind(span).bind(from)).await?;
    let mut pieces: Vec<(i64, u64, u64, Latencies)> = rows
        .iter()
        .map(|row| (row.start, row.good, row.bad, Latencies::from_bytes(&row.latencies)))
        .collect();
    pieces.extend(unsummed(on, monitor, from, length, now, &pieces).await?);
    let mut whole = (from, 0, 0, Latencies::default());
    for (_, good, bad, latencies) in &pieces {
        whole = (whole.0, whole.1 + good, whole.2 + bad, whole.3);
        whole.3.merge(latencies);
    }
    Ok(Points { points: pieces.iter().map(point).collect(), whole: point(&whole) })
}

/// What came after the last summary: a piece for each hour or day, of at most two.
async fn unsummed(
    on: &impl Read,
    monitor: &MonitorId,
    from: i64,
    length: i64,
    now: UnixMs,
    summed: &[(i64, u64, u64, Latencies)],
) -> Result<Vec<(i64, u64, u64, Latencies)>> {
    let present = now.0 - now.0.rem_euclid(length);
    let begin = summed.last().map_or(from, |(start, ..)| start + length).max(present - length);
    let mut pieces = Vec::new();
    let mut start = begin;
    while start <= present {
        // A day of checks every second is more than one answer holds, so it is asked hour by hour.
        let (mut good, mut bad, mut latencies) = (0, 0, Latencies::default());
        let end = (start + length).min(now.0 + 1);
        let mut hour = start;
        while hour < end {
            let summary = of_results(on, monitor, hour, (hour + HOUR_MS).min(end)).await?;
            (good, bad) = (good + summary.good, bad + summary.bad);
            latencies.merge(&summary.latencies);
            hour += HOUR_MS;
        }
        if good + bad > 0 {
            pieces.push((start, good, bad, latencies));
        }
        start += length;
    }
    Ok(pieces)
}

fn point((start, good, bad, latencies): &(i64, u64, u64, Latencies)) -> Point {
    let ms = |per_cent| latencies.percentile(per_cent).map(|us| us as f64 / 1000.0);
    Point { start_ms: *start, good: *good, bad: *bad, p50_ms: ms(50.0), p95_ms: ms(95.0), p99_ms: ms(99.0) }
}

/// The newest single results, the latest first.
pub async fn latest(on: &impl Read, monitor: &MonitorId, most: u16) -> Result<Vec<ResultRow>> {
    let rows: Query<Raw> = sql("SELECT at, state, latency_us, error FROM uptime_result
                                WHERE monitor_id = $1 ORDER BY at DESC, fence DESC LIMIT $2");
    let rows = on.all(rows.bind(monitor).bind(most)).await?;
    let row = |raw: Raw| ResultRow {
        at_ms: raw.at.0,
        state: raw.state,
        latency_us: raw.latency_us,
        error: raw.error,
    };
    Ok(rows.into_iter().map(row).collect())
}

/// When monitors were down, from their incidents: exact to the failed try, whatever the interval.
#[derive(Clone, Debug, Default)]
pub struct Downtime {
    by_monitor: HashMap<MonitorId, Vec<Incident>>,
    now_ms: i64,
}

/// Asks for the incidents of these monitors within the longest period.
pub async fn availability(on: &impl Read, monitors: &[MonitorId], now: UnixMs) -> Result<Downtime> {
    let from = UnixMs(now.0 - Period::Quarter.length_ms());
    let mut by_monitor: HashMap<MonitorId, Vec<Incident>> = HashMap::new();
    for some in monitors.chunks(500) {
        for incident in incident::overlapping(on, some, from).await? {
            by_monitor.entry(incident.monitor_id.clone()).or_default().push(incident);
        }
    }
    Ok(Downtime { by_monitor, now_ms: now.0 })
}

impl Downtime {
    /// The share of a period, or of the monitor's life if that is shorter, in which it was not down; per cent.
    #[must_use]
    pub fn uptime(&self, monitor: &Monitor, period: Period) -> f64 {
        let from = (self.now_ms - period.length_ms()).max(monitor.created_at.0);
        let length = (self.now_ms - from).max(1);
        100.0 * (1.0 - self.down_ms(&monitor.id, from, self.now_ms) as f64 / length as f64).max(0.0)
    }

    /// How long a monitor was down in `from..to`, maintenance left out.
    #[must_use]
    pub fn down_ms(&self, monitor: &MonitorId, from: i64, to: i64) -> i64 {
        let counts = |incident: &&Incident| !incident.maintenance;
        let within = |incident: &Incident| {
            let end = incident.resolved_at.map_or(self.now_ms, |at| at.0);
            (end.min(to) - incident.opened_at.0.max(from)).max(0)
        };
        self.incidents(monitor).iter().filter(counts).map(within).sum()
    }

    /// The newest first.
    #[must_use]
    pub fn incidents(&self, monitor: &MonitorId) -> &[Incident] {
        self.by_monitor.get(monitor).map_or(&[], Vec::as_slice)
    }
}
