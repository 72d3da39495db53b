//! Single results of checks.

use hob_database::{Database, Error, Query, Read, Transaction, UnixMs, column, from_row, sql};

use crate::error::Result;
use crate::keys::MonitorId;
use crate::monitor::history::{NewResult, ResultRow};
use crate::schedule::state::MonitorState;

struct Row {
    at: UnixMs,
    state: MonitorState,
    latency_us: u64,
    error: Option<String>,
}

column!(MonitorState as text);
from_row!(Row { at, state, latency_us, error });

/// Inserts results; a result that is already there stays as it is.
pub(crate) async fn insert(tx: &Transaction, results: &[NewResult]) -> Result<(), Error> {
    let mut rows = Vec::with_capacity(results.len());
    for NewResult { monitor, at, fence, state, latency_us, error } in results {
        rows.push((monitor, *at, *fence, state.as_str(), *latency_us, error.as_deref()));
    }
    let head = "INSERT INTO uptime_result (monitor_id, at, fence, state, latency_us, error)";
    tx.insert_all(head, rows, "ON CONFLICT DO NOTHING").await?;
    Ok(())
}

/// The newest results of a monitor, the latest first.
pub async fn latest(on: &impl Read, monitor: &MonitorId, limit: u16) -> Result<Vec<ResultRow>> {
    let rows: Query<Row> = sql("SELECT at, state, latency_us, error FROM uptime_result
                                WHERE monitor_id = $1 ORDER BY at DESC, fence DESC LIMIT $2");
    let rows = on.all(rows.bind(monitor).bind(limit)).await?;
    let result = |row: Row| ResultRow {
        at_ms: row.at.0,
        state: row.state,
        latency_us: row.latency_us,
        error: row.error,
    };
    Ok(rows.into_iter().map(result).collect())
}

/// Latency and success of every result of a monitor in `from..to`.
pub(crate) async fn between(
    on: &impl Read,
    monitor: &MonitorId,
    from: i64,
    to: i64,
) -> Result<Vec<(u64, bool)>, Error> {
    let results: Query<(u64, bool)> = sql("SELECT latency_us, error IS NULL FROM uptime_result
                                           WHERE monitor_id = $1 AND at >= $2 AND at < $3");
    on.all(results.bind(monitor).bind(from).bind(to)).await
}

/// The most results that [`timed`] returns: six hours with more than two checks a second.
const MAX_TIMED: u32 = 50_000;

/// Time, latency and success of the results of a monitor in `from..to`, in order.
pub(crate) async fn timed(
    on: &impl Read,
    monitor: &MonitorId,
    from: i64,
    to: i64,
) -> Result<Vec<(i64, u64, bool)>, Error> {
    let results: Query<(i64, u64, bool)> = sql("SELECT at, latency_us, error IS NULL FROM uptime_result
                                                WHERE monitor_id = $1 AND at >= $2 AND at < $3 ORDER BY at LIMIT $4");
    on.all(results.bind(monitor).bind(from).bind(to).bind(MAX_TIMED)).await
}

/// When the oldest result was; `None` without results.
pub(crate) async fn oldest(on: &impl Read) -> Result<Option<UnixMs>> {
    let oldest: Query<(Option<UnixMs>,)> = sql("SELECT min(at) FROM uptime_result");
    Ok(on.one(oldest).await?.0)
}

pub(crate) async fn delete_before(database: &Database, before: UnixMs) -> Result<()> {
    database.execute(sql("DELETE FROM uptime_result WHERE at < $1").bind(before)).await?;
    Ok(())
}
