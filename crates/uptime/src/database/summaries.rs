//! Hourly and daily summaries of results, and how far they go.

use hob_database::{Database, Error, Query, Read, Transaction, UnixMs, from_row, sql};

use crate::error::Result;
use crate::keys::MonitorId;
use crate::monitor::history::{Histogram, Span, Summary};

struct Row {
    start: i64,
    good: u64,
    bad: u64,
    latencies: Vec<u8>,
}

from_row!(Row { start, good, bad, latencies });

/// The summaries of a monitor that start in `from..to`, in order.
pub(crate) async fn between(
    on: &impl Read,
    monitor: &MonitorId,
    span: Span,
    from: i64,
    to: i64,
) -> Result<Vec<Summary>, Error> {
    let rows: Query<Row> = sql("SELECT start, good, bad, latencies FROM uptime_summary
                                WHERE monitor_id = $1 AND span = $2 AND start >= $3 AND start < $4 ORDER BY start");
    let rows = on.all(rows.bind(monitor).bind(span.as_str()).bind(from).bind(to)).await?;
    let summary = |row: Row| Summary {
        start_ms: row.start,
        good: row.good,
        bad: row.bad,
        // Without percentiles if the bytes are corrupt: an error would stop the summaries of all monitors.
        latencies: Histogram::decode(&row.latencies).unwrap_or_default(),
    };
    Ok(rows.into_iter().map(summary).collect())
}

/// Successful and failed checks of all monitors, by the hours that start at `from` or later, in order.
pub(crate) async fn hourly_checks(on: &impl Read, from: UnixMs) -> Result<Vec<(i64, u64, u64)>> {
    let hours: Query<(i64, u64, u64)> =
        sql("SELECT start, CAST(sum(good) AS BIGINT), CAST(sum(bad) AS BIGINT) FROM uptime_summary
             WHERE span = $1 AND start >= $2 GROUP BY start ORDER BY start");
    Ok(on.all(hours.bind(Span::Hour.as_str()).bind(from)).await?)
}

/// Inserts summaries, or replaces those that are there.
pub(crate) async fn put(
    tx: &Transaction,
    span: Span,
    summaries: &[(&MonitorId, Summary)],
) -> Result<(), Error> {
    let row = |(monitor, summary): &(&MonitorId, Summary)| {
        let latencies = summary.latencies.encode();
        ((*monitor).clone(), span.as_str(), summary.start_ms, summary.good, summary.bad, latencies)
    };
    let head = "INSERT INTO uptime_summary (monitor_id, span, start, good, bad, latencies)";
    let tail = "ON CONFLICT (monitor_id, span, start)
                DO UPDATE SET good = excluded.good, bad = excluded.bad, latencies = excluded.latencies";
    tx.insert_all(head, summaries.iter().map(row).collect::<Vec<_>>(), tail).await?;
    Ok(())
}

pub(crate) async fn delete_before(database: &Database, span: Span, before: UnixMs) -> Result<()> {
    let delete = sql("DELETE FROM uptime_summary WHERE span = $1 AND start < $2");
    database.execute(delete.bind(span.as_str()).bind(before)).await?;
    Ok(())
}

/// The end of what is summarized; `None` before the first summary.
pub(crate) async fn done_until(on: &impl Read, span: Span) -> Result<Option<i64>> {
    let until: Query<(i64,)> = sql("SELECT until FROM uptime_summed WHERE span = $1");
    Ok(on.optional(until.bind(span.as_str())).await?.map(|(until,)| until))
}

/// Sets where summarizing starts, unless another node has done so.
pub(crate) async fn start_at(database: &Database, span: Span, start: i64) -> Result<()> {
    let insert = sql("INSERT INTO uptime_summed (span, until) VALUES ($1, $2) ON CONFLICT DO NOTHING");
    database.execute(insert.bind(span.as_str()).bind(start)).await?;
    Ok(())
}

/// Moves the end from `start` to `end`, unless it was moved since.
pub(crate) async fn advance(database: &Database, span: Span, start: i64, end: i64) -> Result<()> {
    let advance = sql("UPDATE uptime_summed SET until = $2 WHERE span = $1 AND until = $3");
    database.execute(advance.bind(span.as_str()).bind(end).bind(start)).await?;
    Ok(())
}

/// Moves the end back to `start`, so that what follows is summarized again.
pub(crate) async fn rewind(tx: &Transaction, start: i64) -> Result<(), Error> {
    tx.execute(sql("UPDATE uptime_summed SET until = $1 WHERE until > $1").bind(UnixMs(start))).await?;
    Ok(())
}
