//! `pipeline_tally`: how many items of a run are in each state. Every transaction that moves items updates it, so that
//! reading progress does not scan a million rows.

use hob_database::{Read, Transaction, sql};

use super::Result;
use crate::run::RunId;
use crate::run::item::ItemState;

/// Adds to the counts of a run: step, class, state and the difference. The caller holds the lock on the run.
pub(crate) async fn add(
    tx: &Transaction,
    run: &RunId,
    changes: Vec<(String, String, ItemState, i64)>,
) -> Result<()> {
    let rows: Vec<_> =
        changes.into_iter().map(|(step, class, state, items)| (run, step, class, state, items)).collect();
    let head = "INSERT INTO pipeline_tally (run, step, class, state, items)";
    let tail =
        "ON CONFLICT (run, step, class, state) DO UPDATE SET items = pipeline_tally.items + excluded.items";
    tx.insert_all(head, rows, tail).await?;
    Ok(())
}

/// The counts of a run: step, class, state and number of items.
pub(crate) async fn read(on: &impl Read, run: &RunId) -> Result<Vec<(String, String, ItemState, u64)>> {
    let list = sql("SELECT step, class, state, items FROM pipeline_tally WHERE run = $1 AND items > 0");
    on.all(list.bind(run)).await
}
