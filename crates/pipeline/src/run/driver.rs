//! How a node works on a run: it claims what is due, tries it, commits what came of it, and writes the results.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use hob_database::UnixMs;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::database::{outputs, runs};
use crate::error::Result;
use crate::pipeline::Shared;
use crate::plan::Plan;
use crate::run::client::AttemptFailure;
use crate::run::item::{self, AttemptOutcome, Claim, FinishedAttempt, Item};
use crate::run::seed;
use crate::run::{self, Run, RunId, RunState, SEEDED};
use crate::sink::{self, Sinks};

/// Between two looks at a run that has nothing to do.
const IDLE_WAIT: Duration = Duration::from_millis(200);
/// Results that wait for a sink; with more, nothing new is tried.
const MAX_PENDING_RESULTS: u32 = 10_000;
/// Between two writes of results, and two views.
const TICK: Duration = Duration::from_millis(500);

/// One node's work on one run.
pub(crate) struct Driver {
    pub(crate) shared: Arc<Shared>,
    pub(crate) run: RunId,
    pub(crate) plan: Plan,
    /// The steps whose results are kept, each with the hash of its definition.
    pub(crate) stored_steps: BTreeMap<String, String>,
    /// Who holds the claims: random, so that a restarted node is another.
    worker: String,
    /// The one item of the run that waits for the quota.
    pub(crate) quota_gate: tokio::sync::Mutex<()>,
    /// Nothing new is tried.
    pub(crate) stop: CancellationToken,
    /// Nothing is under way any more.
    finished: CancellationToken,
}

/// The claims that are held, with how many of their items are under way.
type OpenClaims = BTreeMap<i64, usize>;

impl Driver {
    pub(crate) fn new(shared: &Arc<Shared>, run: &Run, stop: CancellationToken) -> Result<Self> {
        let plan = Plan::parse(&run.text)?;
        Ok(Self {
            shared: Arc::clone(shared),
            run: run.id.clone(),
            stored_steps: plan.stored_steps(),
            plan,
            worker: format!("{}-{:016x}", shared.context.node, rand::random::<u64>()),
            quota_gate: tokio::sync::Mutex::default(),
            stop,
            finished: CancellationToken::new(),
        })
    }

    /// Works until the run is over or not running any more, or the node stops.
    pub(crate) async fn drive(self) -> Result<()> {
        let this = Arc::new(self);
        let mut background = tokio::spawn(Arc::clone(&this).run_background());
        let result = Arc::clone(&this).work().await;
        this.finished.cancel();
        if tokio::time::timeout(Duration::from_secs(30), &mut background).await.is_err() {
            background.abort();
        }
        result
    }

    async fn work(self: Arc<Self>) -> Result<()> {
        let database = &self.shared.context.database;
        // Tasks, which go on while this one waits for the database: they may hold what it waits for.
        let mut in_flight = JoinSet::new();
        let mut open_claims = OpenClaims::new();
        loop {
            if !self.stop.is_cancelled() {
                let run = run::find(database, &self.run).await?;
                if run.state != RunState::Running {
                    self.stop.cancel();
                } else if run.seeded_to != SEEDED {
                    seed::seed(database, &run, &self.plan, &self.shared.folder).await?;
                }
            }
            let claimed = self.claim(in_flight.len()).await?;
            if let Some(Claim { number, items }) = claimed {
                open_claims.insert(number, items.len());
                for item in items {
                    in_flight.spawn(Arc::clone(&self).attempt_item(number, item));
                }
            }
            let mut finished = Vec::new();
            tokio::select! {
                Some(attempt) = in_flight.join_next() => finished.extend(attempt),
                () = tokio::time::sleep(IDLE_WAIT) => {}
            }
            while let Some(attempt) = in_flight.try_join_next() {
                finished.extend(attempt);
            }
            self.commit(&finished, &mut open_claims).await?;
            let idle = in_flight.is_empty() && open_claims.is_empty();
            if idle && (self.stop.is_cancelled() || self.complete().await?) {
                return Ok(());
            }
        }
    }

    /// Ends a run that has nothing left to do, and says whether it did. Its files get their names before that: if this
    /// process dies in between, the run goes on and does it again.
    async fn complete(&self) -> Result<bool> {
        let database = &self.shared.context.database;
        Ok(runs::has_nothing_left(database, &self.run).await?
            && sink::publish(database, &self.run, &self.plan, &self.shared.folder).await?
            && run::complete(database, &self.run).await?)
    }

    async fn claim(&self, in_flight: usize) -> Result<Option<Claim>> {
        let config = self.shared.config.now();
        let room = config.batch.saturating_sub(u32::try_from(in_flight).unwrap_or(u32::MAX));
        // In halves at least: a claim for each single item would be a write for each.
        if self.stop.is_cancelled() || room < config.batch.div_ceil(2) {
            return Ok(None);
        }
        let database = &self.shared.context.database;
        if !self.plan.sinks.is_empty()
            && outputs::has_more_than(database, &self.run, MAX_PENDING_RESULTS).await?
        {
            return Ok(None);
        }
        item::claim(database, &self.run, &self.worker, room, config.lease.get()).await
    }

    async fn attempt_item(self: Arc<Self>, claim: i64, item: Item) -> FinishedAttempt {
        let begun_at = UnixMs(jiff::Timestamp::now().as_millisecond());
        let tried = AssertUnwindSafe(self.attempt(&item)).catch_unwind().await;
        let (status, calls, outcome) = match tried {
            Ok(tried) => (tried.status, tried.calls, tried.outcome),
            Err(_) => {
                let failure = AttemptFailure::parse("the attempt panicked");
                let AttemptFailure { class, error } = failure;
                (0, 0, AttemptOutcome::Quarantined { class, error })
            }
        };
        FinishedAttempt { item, claim, begun_at, status, calls, outcome }
    }

    async fn commit(&self, finished: &[FinishedAttempt], open_claims: &mut OpenClaims) -> Result<()> {
        if finished.is_empty() {
            return Ok(());
        }
        for attempt in finished {
            if let Some(left) = open_claims.get_mut(&attempt.claim) {
                *left -= 1;
            }
        }
        let ended_claims: Vec<i64> =
            open_claims.extract_if(.., |_, left| *left == 0).map(|(claim, _)| claim).collect();
        let database = &self.shared.context.database;
        let counted =
            item::commit(database, &self.run, self.plan.name.as_str(), finished, &ended_claims).await?;
        let late = finished.len() as u64 - counted;
        if late > 0 {
            tracing::warn!(run = %self.run, late, "results came after their claim was over; the items are tried again");
        }
        let failed = finished.iter().filter(|attempt| {
            matches!(attempt.outcome, AttemptOutcome::Retry { .. } | AttemptOutcome::Quarantined { .. })
        });
        let failed: Vec<&str> = failed.map(|attempt| attempt.item.key.as_str()).collect();
        let done =
            finished.iter().filter(|attempt| matches!(attempt.outcome, AttemptOutcome::Done { .. })).count();
        for (outcome, count) in [("done", done), ("failed", failed.len())] {
            crate::metrics::items(outcome, count);
        }
        if let Err(error) = self.shared.views.publish_failed(failed).await {
            tracing::debug!(%error, "failures are not shown");
        }
        Ok(())
    }

    /// What goes on beside the work, each at its own pace: a store or a sink that hangs must not cost the claims.
    async fn run_background(self: Arc<Self>) {
        tokio::join!(self.renew_claims(), self.write_results(), self.publish_view());
    }

    async fn renew_claims(&self) {
        while self.tick().await {
            let lease = self.shared.config.now().lease.get();
            if let Err(error) =
                item::renew(&self.shared.context.database, &self.run, &self.worker, lease).await
            {
                tracing::warn!(run = %self.run, %error, "claims could not be renewed");
            }
        }
    }

    /// Once more when the work is over: its last results are there by then.
    async fn write_results(&self) {
        let database = &self.shared.context.database;
        let mut sinks = Sinks::new(database, &self.run, &self.plan, &self.shared.folder);
        let mut trouble = String::new();
        let mut working = true;
        while working {
            working = self.tick().await;
            let now = match sinks.drain(&self.shared.context.secrets).await {
                Ok(_) => String::new(),
                Err(error) => error.to_string(),
            };
            if now != trouble {
                tracing::warn!(run = %self.run, trouble = %now, "the sinks' state changed");
                if runs::set_trouble(database, &self.run, &now).await.is_ok() {
                    trouble = now;
                }
            }
        }
        if let Err(error) = sinks.release().await {
            tracing::warn!(run = %self.run, %error, "sinks could not be released");
        }
    }

    async fn publish_view(&self) {
        let mut working = true;
        while working {
            working = self.tick().await;
            if let Err(error) = self.shared.publish_view(&self.run).await {
                tracing::debug!(run = %self.run, %error, "the run is not shown");
            }
            self.shared.notify_pages();
        }
    }

    /// Waits a moment; `false` once the work is over.
    async fn tick(&self) -> bool {
        tokio::time::timeout(TICK, self.finished.cancelled()).await.is_err()
    }
}
