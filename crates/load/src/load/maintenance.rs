//! Maintenance of the public queue and of the views, and deletion of old measurements.

use std::time::{Duration, Instant};

use hob_service::Task;

use super::Load;
use crate::database::{self, runs};
use crate::keys::{Keys, TestId};
use crate::plan::catalog::PlanId;
use crate::run::Run;
use crate::run::lifecycle::{self, InsertOutcome};
use crate::run::pending::{EntryOrigin, PushedEntry, PushedRun};
use crate::run::views::Progress;
use crate::{Error, metrics};

const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);
/// Rounds of maintenance between two sweeps.
const SWEEP_ROUNDS: u32 = 5;
/// Rounds of maintenance between two deletions of old measurements.
const DELETE_ROUNDS: u32 = SWEEP_ROUNDS * 720;

/// Whether there is anything to maintain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    Some,
    None,
}

impl Load {
    pub(super) async fn maintain(self, task: Task) {
        let mut queued = self.inner.context.database.wakeups(runs::QUEUED);
        let (mut round, mut quiet_until) = (0_u32, Instant::now());
        while task.pause(MAINTENANCE_INTERVAL).await {
            task.heartbeat();
            // Other clients push onto the public queue without a signal.
            let is_quiet = Instant::now() < quiet_until && !queued.has_signal();
            if is_quiet && self.inner.queue.read().await.is_ok_and(|list| list.is_empty()) {
                continue;
            }
            queued.reset();
            match self.maintain_once(round).await {
                Ok(Activity::None) => {
                    quiet_until = Instant::now() + queued.poll(MAINTENANCE_INTERVAL);
                    round = round.wrapping_add(SWEEP_ROUNDS);
                }
                Ok(Activity::Some) => round = round.wrapping_add(1),
                Err(error) => {
                    if !error.is_reported() {
                        tracing::warn!(%error, "maintenance of the load service failed, retrying");
                    }
                    round = round.wrapping_add(1);
                }
            }
        }
    }

    /// One round of maintenance: it synchronizes the public queue every time, and every few rounds it writes the other
    /// views again and removes old data.
    pub async fn maintain_once(&self, round: u32) -> Result<Activity, Error> {
        let pending = self.sync_queue().await?;
        let mut activity = Activity::Some;
        if round.is_multiple_of(SWEEP_ROUNDS) {
            let active = runs::active(&self.inner.context.database).await?;
            metrics::runs(pending.len(), &active);
            self.inner.views.sweep_active(&active).await?;
            for run in &pending {
                self.inner.views.status(run, Progress::of(run)).await?;
            }
            let now = database::now(&self.inner.context.database).await?;
            let ended = runs::ended(&self.inner.context.database, now.minus(Keys::STATUS_TTL_AFTER)).await?;
            self.inner.views.restore_ended(&ended, now).await?;
            if pending.is_empty() && active.is_empty() && ended.is_empty() {
                activity = Activity::None;
            }
        }
        if round.is_multiple_of(DELETE_ROUNDS) {
            lifecycle::delete_old_seconds(&self.inner.context.database, self.config().keep_results.get())
                .await?;
        }
        Ok(activity)
    }

    /// Imports the entries that other clients pushed onto the public queue, then replaces the public queue with the
    /// queue of the database (L7).
    async fn sync_queue(&self) -> Result<Vec<Run>, Error> {
        let list = self.inner.queue.read().await?;
        let mut pending = self.pending().await?;
        let pushed = list.pushed(&pending);
        let has_new = !pushed.is_empty();
        for entry in pushed {
            match entry {
                PushedEntry::Run(run) => self.import_run(&run).await?,
                PushedEntry::Repeated(id) => warn_repeated(&id),
                PushedEntry::Invalid(text) => {
                    let entry: String = text.chars().take(200).collect();
                    tracing::warn!(entry, "invalid entry dropped from the load queue");
                }
            }
        }
        if has_new {
            pending = self.pending().await?;
        }
        self.inner.queue.sync(&list, &pending).await?;
        Ok(pending)
    }

    async fn import_run(&self, pushed: &PushedRun) -> Result<(), Error> {
        let id = &pushed.id;
        if let Some(existing) = self.run(id).await? {
            if self.inner.queue.origin(pushed, &existing) == EntryOrigin::OtherClient {
                warn_repeated(id);
            }
            return Ok(());
        }
        let Some(cached) = self.plan(pushed.plan_id).await? else {
            warn_without_plan(id, pushed.plan_id);
            return Ok(());
        };
        let plan = cached.read()?;
        if let Err(error) = self.targets().check(&plan, 0) {
            tracing::warn!(run = %id, %error, "queued load run dropped, its target is not allowed");
            return Ok(());
        }
        match self.enqueue(id, pushed.plan_id, plan, 0, &pushed.request).await? {
            // Another node has imported the entry at the same time.
            InsertOutcome::Inserted | InsertOutcome::Exists => {}
            InsertOutcome::PlanNotFound => warn_without_plan(id, pushed.plan_id),
        }
        Ok(())
    }
}

fn warn_repeated(id: &TestId) {
    tracing::warn!(run = %id, "queued load run dropped, its test id is already used");
}

fn warn_without_plan(id: &TestId, plan: PlanId) {
    tracing::warn!(run = %id, plan = %plan, "queued load run dropped, its plan does not exist");
}
