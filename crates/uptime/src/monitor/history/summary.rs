//! Hourly summaries from results, daily summaries from hours. A summary is always computed from all of its parts, so
//! computing it twice, on two nodes or after a crash, gives the same row.

use std::time::Duration;

use hob_database::{Database, Error, Isolation, Read, Transaction, UnixMs};

use super::{HOUR_MS, Histogram, Span};
use crate::Config;
use crate::database::{incidents, results, summaries};
use crate::error::Result;
use crate::keys::MonitorId;

/// Results of an hour that just ended may still be queued.
const SETTLING_TIME: Duration = Duration::from_secs(120);
/// Monitors of one transaction.
const BATCH: usize = 100;
/// Hours or days of one round; the next round continues.
const MAX_STEPS: usize = 24;
/// Slices of old results that one round deletes.
const MAX_SLICES: usize = 200;
const SLICE_MS: i64 = HOUR_MS / 6;

/// The results of an hour, a day or longer.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) start_ms: i64,
    pub(crate) good: u64,
    pub(crate) bad: u64,
    pub(crate) latencies: Histogram,
}

impl Summary {
    pub(super) fn is_empty(&self) -> bool {
        self.good + self.bad == 0
    }

    pub(super) fn add(&mut self, latency_us: u64, good: bool) {
        if good {
            self.good += 1;
            self.latencies.record(latency_us);
        } else {
            self.bad += 1;
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.good += other.good;
        self.bad += other.bad;
        self.latencies.merge(&other.latencies);
    }
}

/// Summarizes the hours and days that have ended.
pub async fn summarize(database: &Database, monitors: &[MonitorId], now: UnixMs) -> Result<()> {
    for span in [Span::Hour, Span::Day] {
        let Some(mut start) = next_start(database, span).await? else { continue };
        let ended = span.start_of(now.minus(SETTLING_TIME).0);
        for _ in 0..MAX_STEPS {
            if start >= ended {
                break;
            }
            for batch in monitors.chunks(BATCH) {
                summarize_batch(database, span, start, batch).await?;
            }
            let end = start + span.length_ms();
            summaries::advance(database, span, start, end).await?;
            start = end;
        }
    }
    Ok(())
}

/// Where summarizing continues: after the last summary, or at the first result.
async fn next_start(database: &Database, span: Span) -> Result<Option<i64>> {
    if let Some(until) = summaries::done_until(database, span).await? {
        return Ok(Some(span.start_of(until)));
    }
    let Some(first) = results::oldest(database).await? else { return Ok(None) };
    let start = span.start_of(first.0);
    summaries::start_at(database, span, start).await?;
    Ok(Some(start))
}

async fn summarize_batch(database: &Database, span: Span, start: i64, monitors: &[MonitorId]) -> Result<()> {
    let work = |tx: Transaction| async move {
        let mut batch = Vec::new();
        for monitor in monitors {
            let end = start + span.length_ms();
            let summary = match span {
                Span::Hour => summarize_results(&tx, monitor, start, end).await?,
                Span::Day => summarize_hours(&tx, monitor, start, end).await?,
            };
            if !summary.is_empty() {
                batch.push((monitor, summary));
            }
        }
        summaries::put(&tx, span, &batch).await
    };
    Ok(database.write_with(Isolation::ReadCommitted, work).await?)
}

/// The results of a monitor in `from..to`.
pub(super) async fn summarize_results(
    on: &impl Read,
    monitor: &MonitorId,
    from: i64,
    to: i64,
) -> Result<Summary, Error> {
    let mut summary = Summary { start_ms: from, ..Summary::default() };
    for (latency_us, good) in results::between(on, monitor, from, to).await? {
        summary.add(latency_us, good);
    }
    Ok(summary)
}

/// The hours of a monitor in `from..to`.
async fn summarize_hours(on: &impl Read, monitor: &MonitorId, from: i64, to: i64) -> Result<Summary, Error> {
    let mut summary = Summary { start_ms: from, ..Summary::default() };
    for hour in summaries::between(on, monitor, Span::Hour, from, to).await? {
        summary.merge(&hour);
    }
    Ok(summary)
}

/// Deletes what is older than the configuration keeps. Results go in slices of time, so that no transaction is long.
pub async fn trim(database: &Database, config: &Config, now: UnixMs) -> Result<()> {
    let before = now.minus(config.keep_results.get());
    for _ in 0..MAX_SLICES {
        let Some(oldest) = results::oldest(database).await? else { break };
        if oldest >= before {
            break;
        }
        results::delete_before(database, UnixMs(before.0.min(oldest.0 + SLICE_MS))).await?;
    }
    for (span, keep) in [(Span::Hour, config.keep_hours), (Span::Day, config.keep_days)] {
        summaries::delete_before(database, span, now.minus(keep.get())).await?;
    }
    incidents::delete_resolved_before(database, now.minus(config.keep_days.get())).await
}
