//! Runs that the demo writes at once, as if they had ended before.

use hob_database::{Transaction, UnixMs, sql};

use super::Result;
use crate::keys::TestId;
use crate::plan::catalog::PlanId;
use crate::run::RunState;

/// A run that has ended.
pub(crate) struct PastRun<'a> {
    pub(crate) id: &'a TestId,
    pub(crate) plan: PlanId,
    pub(crate) run_type: &'a str,
    pub(crate) users: u32,
    pub(crate) state: RunState,
    pub(crate) message: &'a str,
    pub(crate) node: &'a str,
    pub(crate) started_at: UnixMs,
    pub(crate) ended_at: UnixMs,
}

/// Inserts a run; `false` if there is one with its id.
pub(crate) async fn insert(tx: &Transaction, run: &PastRun<'_>) -> Result<bool> {
    let insert = sql("INSERT INTO load_run (id, plan_id, plan_version, run_type, priority, max_users, target_users,
             progress, runners, seed, state, message, holder, fence, epoch, lease_until, rank, queued_at, start_at, ended_at)
         VALUES ($1, $2, 1, $3, 0, $4, $4, 100, 1, 1, $5, $6, $7, 1, 1, 0, 0, $8, $8, $9) ON CONFLICT DO NOTHING");
    let insert = insert.bind(run.id).bind(run.plan).bind(run.run_type).bind(run.users).bind(run.state);
    let insert = insert.bind(run.message).bind(run.node).bind(run.started_at).bind(run.ended_at);
    Ok(tx.execute(insert).await? > 0)
}
