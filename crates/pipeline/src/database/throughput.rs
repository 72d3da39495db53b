//! `pipeline_pace`: attempts per time step, for the chart of a run.

use hob_database::{Read, Transaction, UnixMs, sql};

use super::Result;
use crate::run::RunId;

pub(crate) async fn add(tx: &Transaction, run: &RunId, at: UnixMs, items: usize) -> Result<()> {
    let add = sql("INSERT INTO pipeline_pace (run, at, items) VALUES ($1, $2, $3)
                   ON CONFLICT (run, at) DO UPDATE SET items = pipeline_pace.items + excluded.items");
    tx.execute(add.bind(run).bind(at).bind(items)).await?;
    Ok(())
}

/// Attempts per time step, oldest first.
pub(crate) async fn since(on: &impl Read, run: &RunId, since: UnixMs) -> Result<Vec<(UnixMs, u64)>> {
    let list = sql("SELECT at, items FROM pipeline_pace WHERE run = $1 AND at >= $2 ORDER BY at");
    on.all(list.bind(run).bind(since)).await
}

pub(crate) async fn delete_before(tx: &Transaction, before: UnixMs) -> Result<u64> {
    tx.execute(sql("DELETE FROM pipeline_pace WHERE at < $1").bind(before)).await
}
