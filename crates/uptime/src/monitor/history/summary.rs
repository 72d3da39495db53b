//! Hours from results, days from hours. A summary is always made again from all its parts, so making it twice, on two
//! nodes or after a crash, does no harm.

use std::time::Duration;

use hob_database::{Database, Query, Read, Transaction, UnixMs, from_row, sql};

use super::{DAY_MS, HOUR_MS, Latencies};
use crate::Config;
use crate::error::Result;
use crate::keys::MonitorId;

/// Results of an hour that just ended may still wait.
const SETTLE: Duration = Duration::from_secs(120);
/// Monitors of one transaction.
const BATCH: usize = 100;
/// What one round does at most, so that others get their turn.
const MOST_HOURS: usize = 24;
const MOST_SLICES: usize = 200;

#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) good: u64,
    pub(crate) bad: u64,
    pub(crate) latencies: Latencies,
}

pub(super) struct HourRow {
    pub(super) good: u64,
    pub(super) bad: u64,
    pub(super) latencies: Vec<u8>,
}

from_row!(HourRow { good, bad, latencies });

/// Sums up the hours and days that are over.
pub async fn summarize(database: &Database, monitors: &[MonitorId], now: UnixMs) -> Result<()> {
    let over = |length: i64| {
        let settled = now.minus(SETTLE).0;
        settled - settled.rem_euclid(length)
    };
    for (span, length) in [("h", HOUR_MS), ("d", DAY_MS)] {
        let Some(mut start) = next_start(database, span, length).await? else { continue };
        for _ in 0..MOST_HOURS {
            if start >= over(length) {
                break;
            }
            for batch in monitors.chunks(BATCH) {
                sum(database, span, start, length, batch).await?;
            }
            let done = sql("UPDATE uptime_summed SET until = $2 WHERE span = $1 AND until = $3");
            database.execute(done.bind(span).bind(start + length).bind(start)).await?;
            start += length;
        }
    }
    Ok(())
}

/// Where summing goes on: after what is summed, or with the first result there is.
async fn next_start(database: &Database, span: &'static str, length: i64) -> Result<Option<i64>> {
    let until: Query<(i64,)> = sql("SELECT until FROM uptime_summed WHERE span = $1");
    if let Some((until,)) = database.optional(until.bind(span)).await? {
        return Ok(Some(until - until.rem_euclid(length)));
    }
    let first: Query<(Option<i64>,)> = sql("SELECT min(at) FROM uptime_result");
    let (Some(first),) = database.one(first).await? else { return Ok(None) };
    let start = first - first.rem_euclid(length);
    let insert = sql("INSERT INTO uptime_summed (span, until) VALUES ($1, $2) ON CONFLICT DO NOTHING");
    database.execute(insert.bind(span).bind(start)).await?;
    Ok(Some(start))
}

async fn sum(
    database: &Database,
    span: &'static str,
    start: i64,
    length: i64,
    monitors: &[MonitorId],
) -> Result<()> {
    let work = |tx: Transaction| async move {
        let mut rows = Vec::new();
        for monitor in monitors {
            let summary = match span {
                "h" => of_results(&tx, monitor, start, start + length).await?,
                _ => of_hours(&tx, monitor, start, start + length).await?,
            };
            if summary.good + summary.bad > 0 {
                rows.push((monitor, span, start, summary.good, summary.bad, summary.latencies.to_bytes()));
            }
        }
        let head = "INSERT INTO uptime_summary (monitor_id, span, start, good, bad, latencies)";
        let tail = "ON CONFLICT (monitor_id, span, start)
                    DO UPDATE SET good = excluded.good, bad = excluded.bad, latencies = excluded.latencies";
        tx.insert_all(head, rows, tail).await?;
        Ok::<_, hob_database::Error>(())
    };
    Ok(database.write_with(hob_database::Isolation::Committed, work).await?)
}

/// The results of a monitor in `from..to`.
pub(super) async fn of_results(
    on: &impl Read,
    monitor: &MonitorId,
    from: i64,
    to: i64,
) -> Result<Summary, hob_database::Error> {
    let results: Query<(u64, bool)> = sql("SELECT latency_us, error IS NULL FROM uptime_result
                                           WHERE monitor_id = $1 AND at >= $2 AND at < $3");
    let mut summary = Summary::default();
    for (latency_us, good) in on.all(results.bind(monitor).bind(from).bind(to)).await? {
        if good {
            summary.good += 1;
            summary.latencies.add(latency_us);
        } else {
            summary.bad += 1;
        }
    }
    Ok(summary)
}

/// The hours of a monitor in `from..to`.
pub(super) async fn of_hours(
    on: &impl Read,
    monitor: &MonitorId,
    from: i64,
    to: i64,
) -> Result<Summary, hob_database::Error> {
    let hours: Query<HourRow> = sql("SELECT good, bad, latencies FROM uptime_summary
                                     WHERE monitor_id = $1 AND span = 'h' AND start >= $2 AND start < $3");
    let mut summary = Summary::default();
    for hour in on.all(hours.bind(monitor).bind(from).bind(to)).await? {
        summary.good += hour.good;
        summary.bad += hour.bad;
        summary.latencies.merge(&Latencies::from_bytes(&hour.latencies));
    }
    Ok(summary)
}

/// Forgets what was kept for long enough, in slices of time, so that nobody waits long for one.
pub async fn trim(database: &Database, config: &Config, now: UnixMs) -> Result<()> {
    let before = now.minus(config.keep_results.get());
    for _ in 0..MOST_SLICES {
        let oldest: Query<(Option<UnixMs>,)> = sql("SELECT min(at) FROM uptime_result");
        let (Some(oldest),) = database.one(oldest).await? else { break };
        if oldest >= before {
            break;
        }
        let slice = UnixMs(before.0.min(oldest.0 + HOUR_MS / 6));
        database.execute(sql("DELETE FROM uptime_result WHERE at < $1").bind(slice)).await?;
    }
    for (span, keep) in [("h", config.keep_hours), ("d", config.keep_days)] {
        let old = sql("DELETE FROM uptime_summary WHERE span = $1 AND start < $2");
        database.execute(old.bind(span).bind(now.minus(keep.get()))).await?;
    }
    let before = now.minus(config.keep_days.get());
    let notes = sql("DELETE FROM uptime_note WHERE incident_id IN
                     (SELECT id FROM uptime_incident WHERE resolved_at < $1)");
    database.execute(notes.bind(before)).await?;
    database.execute(sql("DELETE FROM uptime_incident WHERE resolved_at < $1").bind(before)).await?;
    Ok(())
}
