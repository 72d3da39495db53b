//! Runs that the demo writes at once, as if they had run before.

use hob_database::{Transaction, UnixMs, sql};

use super::Result;
use super::items::FailedItem;
use crate::run::{RunId, RunState};

/// When a run was started and last changed, and what it did.
pub(crate) struct PastRun {
    pub(crate) state: RunState,
    pub(crate) calls: u32,
    pub(crate) started_at: UnixMs,
    pub(crate) changed_at: UnixMs,
}

/// Sets the state and the times of a run whose source has become items.
pub(crate) async fn set_run(tx: &Transaction, id: &RunId, past: &PastRun) -> Result<()> {
    let set = sql(
        "UPDATE pipeline_run SET state = $2, calls = $3, started_at = $4, changed_at = $5, seeded_to = -1,
                       version = version + 1 WHERE id = $1",
    );
    let set = set.bind(id).bind(past.state).bind(past.calls).bind(past.started_at);
    tx.execute(set.bind(past.changed_at)).await?;
    Ok(())
}

/// Marks the first waiting items of a step as done; returns how many there were.
pub(crate) async fn finish_items(tx: &Transaction, id: &RunId, step: &str, count: u32) -> Result<u64> {
    let update = sql("UPDATE pipeline_item SET state = 'done', attempts = 1, data = '' WHERE run = $1 AND seq IN
        (SELECT seq FROM pipeline_item WHERE run = $1 AND step = $2 AND state = 'waiting' ORDER BY seq LIMIT $3)");
    tx.execute(update.bind(id).bind(step).bind(count)).await
}

/// Lets an item of a step have failed.
pub(crate) async fn fail_item(
    tx: &Transaction,
    id: &RunId,
    (step, key): (&str, &str),
    failed: &FailedItem<'_>,
) -> Result<u64> {
    let update = sql("UPDATE pipeline_item SET state = $4, due_at = $5, class = $6, error = $7, attempts = 3
                      WHERE run = $1 AND step = $2 AND key = $3 AND state = 'waiting'");
    let update = update.bind(id).bind(step).bind(key).bind(failed.state).bind(failed.due_at);
    tx.execute(update.bind(failed.class).bind(failed.error)).await
}
