//! `pipeline_call`: the call log.

use hob_database::{Database, Read, Transaction, UnixMs, from_row, sql};
use hob_store::epoch::Fence;

use super::Result;
use crate::quota::QuotaName;
use crate::quota::log::LoggedCall;

from_row!(LoggedCall { id, quota, run, calls, reserved_at, until, settled });

/// Inserts calls. Returns whether they were inserted: they may be in the log already, or other calls may have the number.
pub(crate) async fn insert(tx: &Transaction, call: &LoggedCall, number: Option<Fence>) -> Result<bool> {
    let insert = sql("INSERT INTO pipeline_call (id, quota, run, calls, reserved_at, until, settled, number)
                      VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING");
    let insert = insert.bind(&call.id).bind(&call.quota).bind(&call.run).bind(call.calls);
    let insert = insert.bind(call.reserved_at).bind(call.until).bind(call.settled);
    Ok(tx.execute(insert.bind(number.map(Fence::get))).await? > 0)
}

/// Records how many calls of a reservation were made, and when they ended. A reservation without calls is kept for its
/// number.
pub(crate) async fn settle(tx: &Transaction, id: &str, made: u32, ended: UnixMs) -> Result<()> {
    let settle = sql("UPDATE pipeline_call SET calls = $2, until = $3, settled = $4 WHERE id = $1");
    tx.execute(settle.bind(id).bind(made).bind(ended).bind(true)).await?;
    Ok(())
}

pub(crate) async fn find(on: &impl Read, quota: &QuotaName, id: &str) -> Result<Option<LoggedCall>> {
    let find = sql("SELECT id, quota, run, calls, reserved_at, until, settled FROM pipeline_call
                    WHERE id = $1 AND quota = $2");
    on.optional(find.bind(id).bind(quota)).await
}

/// The next calls after `after` that end later than `since`, ordered by their end.
pub(crate) async fn ended_after(
    on: &impl Read,
    quota: &QuotaName,
    since: UnixMs,
    after: &(UnixMs, String),
    limit: u32,
) -> Result<Vec<LoggedCall>> {
    let list = sql("SELECT id, quota, run, calls, reserved_at, until, settled FROM pipeline_call
                    WHERE quota = $1 AND until > $2 AND (until, id) > ($3, $4)
                    ORDER BY until, id LIMIT $5");
    on.all(list.bind(quota).bind(since).bind(after.0).bind(&after.1).bind(limit)).await
}

/// The time of the newest reservation; 0 if there is none.
pub(crate) async fn newest(on: &impl Read, quota: &QuotaName) -> Result<UnixMs> {
    let newest =
        sql("SELECT CAST(coalesce(max(reserved_at), 0) AS BIGINT) FROM pipeline_call WHERE quota = $1");
    let (newest,) = on.one(newest.bind(quota)).await?;
    Ok(newest)
}

/// How many calls were reserved in `[from, to)`.
pub(crate) async fn reserved_between(
    on: &impl Read,
    quota: &QuotaName,
    from: UnixMs,
    to: UnixMs,
) -> Result<u64> {
    let count = sql("SELECT CAST(coalesce(sum(calls), 0) AS BIGINT) FROM pipeline_call
                     WHERE quota = $1 AND reserved_at >= $2 AND reserved_at < $3 AND until >= $2");
    let (count,) = on.one(count.bind(quota).bind(from).bind(to)).await?;
    Ok(count)
}

/// Calls by the time step in which they ended, oldest first.
pub(crate) async fn history(
    on: &impl Read,
    quota: &QuotaName,
    since: UnixMs,
    step_ms: i64,
) -> Result<Vec<(UnixMs, u64)>> {
    let history = sql("SELECT until / $3 * $3, CAST(sum(calls) AS BIGINT) FROM pipeline_call
                       WHERE quota = $1 AND until >= $2 GROUP BY 1 ORDER BY 1");
    on.all(history.bind(quota).bind(since).bind(step_ms)).await
}

pub(crate) async fn delete_before(database: &Database, quota: &QuotaName, before: UnixMs) -> Result<u64> {
    let delete = sql("DELETE FROM pipeline_call WHERE quota = $1 AND until < $2");
    database.execute(delete.bind(quota).bind(before)).await
}
