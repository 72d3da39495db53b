//! `pipeline_attempt` and `pipeline_result`: what attempts came to, and the last result of items for later runs.

use hob_database::{Read, Transaction, UnixMs, from_row, sql};

use super::Result;
use crate::run::RunId;

/// An attempt: number of the item, claim, start, HTTP status, failure class.
pub(crate) type AttemptRow<'a> = (i64, i64, UnixMs, u16, &'a str);

/// A result to store: plan, step, key, hash of the step's definition, ETag, line, and the following items in JSON.
pub(crate) type NewResultRow<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str, &'a str, String);

/// A stored result.
pub(crate) struct ResultRow {
    pub(crate) etag: String,
    pub(crate) line: String,
    pub(crate) follow: String,
}

from_row!(ResultRow { etag, line, follow });

/// Records attempts that end now.
pub(crate) async fn insert_attempts(
    tx: &Transaction,
    run: &RunId,
    attempts: Vec<AttemptRow<'_>>,
) -> Result<()> {
    let now = tx.now();
    let rows: Vec<_> = attempts
        .into_iter()
        .map(|(seq, claim, begun_at, status, class)| (run, seq, claim, begun_at, now, status, class))
        .collect();
    let head = "INSERT INTO pipeline_attempt (run, seq, claim, begun_at, ended_at, status, class)";
    tx.insert_all(head, rows, "ON CONFLICT DO NOTHING").await?;
    Ok(())
}

/// The keys of the items of a step that were done last, newest first.
pub(crate) async fn newest_done(on: &impl Read, run: &RunId, step: &str, limit: u32) -> Result<Vec<String>> {
    let list =
        sql("SELECT i.key FROM pipeline_attempt a JOIN pipeline_item i ON i.run = a.run AND i.seq = a.seq
                    WHERE a.run = $1 AND a.class = '' AND i.step = $2 ORDER BY a.ended_at DESC, a.seq DESC LIMIT $3");
    let keys: Vec<(String,)> = on.all(list.bind(run).bind(step).bind(limit)).await?;
    Ok(keys.into_iter().map(|(key,)| key).collect())
}

/// The last result of an item, if it was made under the same definition of its step.
pub(crate) async fn find(
    on: &impl Read,
    plan: &str,
    step: &str,
    key: &str,
    step_hash: &str,
) -> Result<Option<ResultRow>> {
    let find = sql("SELECT etag, line, follow FROM pipeline_result
                    WHERE plan = $1 AND step = $2 AND key = $3 AND shape = $4");
    on.optional(find.bind(plan).bind(step).bind(key).bind(step_hash)).await
}

pub(crate) async fn put(tx: &Transaction, rows: Vec<NewResultRow<'_>>) -> Result<()> {
    let head = "INSERT INTO pipeline_result (plan, step, key, shape, etag, line, follow)";
    let tail = "ON CONFLICT (plan, step, key) DO UPDATE SET shape = excluded.shape, etag = excluded.etag,
                line = excluded.line, follow = excluded.follow";
    tx.insert_all(head, rows, tail).await?;
    Ok(())
}
