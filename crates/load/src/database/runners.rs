//! The table `load_runner`.

use hob_database::{Read, Transaction, UnixMs, sql};

use super::Result;
use crate::keys::TestId;
use crate::run::lifecycle::RunnerId;
use crate::run::{Runner, RunnerState};

pub(crate) async fn list(source: &impl Read, run: &TestId, epoch: u64) -> Result<Vec<Runner>> {
    let select = sql("SELECT number, node, state, message, lease_until FROM load_runner
                      WHERE run_id = $1 AND epoch = $2 ORDER BY number");
    source.all(select.bind(run).bind(epoch)).await
}

pub(crate) async fn insert(
    tx: &Transaction,
    run: &TestId,
    epoch: u64,
    number: u32,
    node: &str,
    lease_until: UnixMs,
) -> Result<()> {
    let insert = sql("INSERT INTO load_runner (run_id, epoch, number, node, state, message, lease_until)
                      VALUES ($1, $2, $3, $4, $5, '', $6)");
    let insert = insert.bind(run).bind(epoch).bind(number).bind(node).bind(RunnerState::Working);
    tx.execute(insert.bind(lease_until)).await?;
    Ok(())
}

/// Renews the lease of a runner that is still working, and sets its state. Returns `false` when the runner was removed.
pub(crate) async fn update(
    tx: &Transaction,
    runner: &RunnerId,
    state: RunnerState,
    message: &str,
    lease_until: UnixMs,
) -> Result<bool> {
    let update = sql("UPDATE load_runner SET lease_until = $4, state = $5, message = $6
                      WHERE run_id = $1 AND epoch = $2 AND number = $3 AND state = $7");
    let update = update.bind(&runner.run).bind(runner.epoch).bind(runner.number).bind(lease_until);
    let update = update.bind(state).bind(message).bind(RunnerState::Working);
    Ok(tx.execute(update).await? > 0)
}

/// Marks a runner as lost if its lease has expired.
pub(crate) async fn set_lost(tx: &Transaction, run: &TestId, epoch: u64, number: u32) -> Result<bool> {
    let update = sql("UPDATE load_runner SET state = $4
                      WHERE run_id = $1 AND epoch = $2 AND number = $3 AND state = $5 AND lease_until < $6");
    let update = update.bind(run).bind(epoch).bind(number).bind(RunnerState::Lost);
    Ok(tx.execute(update.bind(RunnerState::Working).bind(tx.now())).await? == 1)
}
